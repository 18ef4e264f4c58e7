-- Tells what the claim script would have told of a job, had it been able to read it, and writes its job_id into the claim:
-- for jobs in Celery messages.
--
-- KEYS[1] claims of this incarnation   KEYS[2] jobs that run
-- ARGV[1] prefix of all keys   ARGV[2] the incarnation   ARGV[3] max_queue_ms, -1 for off
-- ARGV[4] from how many crashes on a job runs alone among such
-- ARGV[5..] for each job: tag, job_id, expires_at as unix ms or '', enqueued_at as unix ms or ''
--
-- Returns for each job {1 if still claimed, standing, rival, 1 if it is to run alone, attempts as JSON...}, with standing and
-- rival as in claim_from_queues. A repeat writes the same again.

local claims, running = KEYS[1], KEYS[2]
local prefix, incarnation, max_queue_ms, crashes_to_run_alone = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- include standing

local replies = {}
for i = 5, #ARGV, 4 do
  local tag, job_id = ARGV[i], ARGV[i + 1]
  local expires_ms, enqueued_ms = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local expired = (expires_ms and now_ms > expires_ms)
    or (max_queue_ms >= 0 and enqueued_ms and now_ms - enqueued_ms > max_queue_ms)
  local record = redis.call('HGET', claims, tag)
  if not record then
    replies[#replies + 1] = {0, '', '', 0}
  else
    local list, claimed_ms, raw = string.match(record, '^([^\n]*)\n[^\n]*\n([^\n]*)\n(.*)$')
    redis.call('HSET', claims, tag, list .. '\n' .. job_id .. '\n' .. claimed_ms .. '\n' .. raw)
    local standing, rival = standing_among_others(tag, job_id)
    if standing == '' then
      redis.call('HSET', running, job_id, incarnation .. '/' .. tag)
      standing = is_cancelled(job_id) and 'cancelled' or expired and 'expired' or ''
    end
    local attempts = redis.call('LRANGE', prefix .. 'attempts:' .. job_id, 0, -1)
    local reply = {1, standing, rival, crashes(attempts) >= crashes_to_run_alone and 1 or 0}
    for _, attempt in ipairs(attempts) do reply[#reply + 1] = attempt end
    replies[#replies + 1] = reply
  end
end
return replies
