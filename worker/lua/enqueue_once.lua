-- Puts a job at the back of its queue, once per call, however often the call is sent.
--
-- KEYS  1 queue (list)
--       2 marker of the job_id (set of the tokens of calls that were carried out)
-- ARGV  1 token, unique to the call and the same in each repeat of it
--       2 the job's bytes
--       3 how long the marker lives, ms
-- Returns {1 if it was pushed now or 0 if that was done before, length of the queue}.
--
-- Repeating is safe: the token is added and the job pushed in one step, and a token that is there pushes nothing. A set,
-- not one value: a late repeat must not push again because another call about the same job_id came in between.
if redis.call('SADD', KEYS[2], ARGV[1]) == 0 then
  return {0, redis.call('LLEN', KEYS[1])}
end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {1, redis.call('LPUSH', KEYS[1], ARGV[2])}
