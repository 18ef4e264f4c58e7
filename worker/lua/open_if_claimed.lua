-- Tells what the claim script would have told of a job, had it been able to read it: for jobs in Celery messages.
--
-- KEYS[1] claims of this incarnation
-- ARGV[1] prefix of all keys   ARGV[2] max_queue_ms, -1 for off
-- ARGV[3..] for each job: tag, job_id, expires_at as unix ms or '', enqueued_at as unix ms or ''
--
-- Returns for each job {1 if still claimed, 1 if expired, attempts as JSON...}. Changes nothing.

local prefix, max_queue_ms = ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local replies = {}
for i = 3, #ARGV, 4 do
  local expires_ms, enqueued_ms = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local expired = (expires_ms and now_ms > expires_ms)
    or (max_queue_ms >= 0 and enqueued_ms and now_ms - enqueued_ms > max_queue_ms)
  local reply = {redis.call('HEXISTS', KEYS[1], ARGV[i]), expired and 1 or 0}
  for _, attempt in ipairs(redis.call('LRANGE', prefix .. 'attempts:' .. ARGV[i + 1], 0, -1)) do
    reply[#reply + 1] = attempt
  end
  replies[#replies + 1] = reply
end
return replies
