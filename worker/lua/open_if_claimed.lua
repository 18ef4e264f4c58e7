-- Tells what the claim script would have told of a job, had it been able to read it, and writes its job_id into the claim:
-- for jobs in Celery messages.
--
-- KEYS[1] claims of this incarnation   KEYS[2] jobs that run
-- KEYS[3] jobs that wait               KEYS[4] incarnations that hold claims
-- ARGV[1] prefix of all keys   ARGV[2] the incarnation   ARGV[3] max_queue_ms, -1 for off
-- ARGV[4] from how many crashes on a job runs alone among such
-- ARGV[5] 1 if one of those runs here now
-- ARGV[6..] for each job: tag, job_id, expires_at as unix ms or '', enqueued_at as unix ms or ''
--
-- Returns for each job {1 if still claimed, 2 if it was set aside as in claim_from_queues, else 0, standing, rival, 1 if it is
-- to run alone, attempts as JSON...}, with standing and rival as in claim_from_queues. A repeat writes the same again, and finds
-- no claim of what was set aside.

local claims, running, waiting, claimants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, incarnation, max_queue_ms, crashes_to_run_alone = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local one_runs_alone = ARGV[5] == '1'
local ASIDE_MS = 1000
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- include standing

local function opened(tag, job_id, expired)
  local record = redis.call('HGET', claims, tag)
  if not record then return {0, '', '', 0} end
  local list, claimed_ms, raw = string.match(record, '^([^\n]*)\n[^\n]*\n([^\n]*)\n(.*)$')
  local standing, rival = standing_among_others(tag, job_id)
  local attempts = redis.call('LRANGE', prefix .. 'attempts:' .. job_id, 0, -1)
  local alone = crashes(attempts) >= crashes_to_run_alone
  if standing == '' then standing = is_cancelled(job_id) and 'cancelled' or expired and 'expired' or '' end
  if alone and standing == '' then
    if one_runs_alone then
      redis.call('ZADD', waiting, now_ms + ASIDE_MS, incarnation .. '/opened/' .. tag .. '\n' .. list .. '\n' .. raw)
      redis.call('HDEL', claims, tag)
      return {2, '', '', 0}
    end
    one_runs_alone = true
  end
  redis.call('HSET', claims, tag, list .. '\n' .. job_id .. '\n' .. claimed_ms .. '\n' .. raw)
  if standing ~= 'settled' and standing ~= 'held' then redis.call('HSET', running, job_id, incarnation .. '/' .. tag) end
  local reply = {1, standing, rival, alone and 1 or 0}
  for _, attempt in ipairs(attempts) do reply[#reply + 1] = attempt end
  return reply
end

local replies = {}
for i = 6, #ARGV, 4 do
  local expires_ms, enqueued_ms = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local expired = (expires_ms and now_ms > expires_ms)
    or (max_queue_ms >= 0 and enqueued_ms and now_ms - enqueued_ms > max_queue_ms)
  replies[#replies + 1] = opened(ARGV[i], ARGV[i + 1], expired)
end
if redis.call('HLEN', claims) == 0 then redis.call('SREM', claimants, incarnation) end
return replies
