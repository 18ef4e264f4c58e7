-- Moves claimed bytes that cannot become a job to the dead letters, as they came.
--
-- KEYS[1] claims of this incarnation   KEYS[2] the dead letters   KEYS[3] incarnations that hold claims   KEYS[4] jobs that run
-- ARGV[1] prefix of all keys   ARGV[2] the incarnation   ARGV[3] worker_id   ARGV[4] the time, RFC 3339
-- ARGV[5..] for each: tag, reason
--
-- Returns for each: 1 it is buried, 0 the claim is gone. A repeat finds no claim and changes nothing. Nothing is written
-- before the dead letter, so a server that refuses writes leaves the claim as it was.

local claims, letters, claimants, running = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, incarnation = ARGV[1], ARGV[2]

-- include claims
-- include running

local replies = {}
for i = 5, #ARGV, 2 do
  local tag = ARGV[i]
  local record = redis.call('HGET', claims, tag)
  if record then
    local list, job_id, _, holds, raw = parts_of(record)
    redis.call('XADD', letters, '*', 'queue', list, 'reason', ARGV[i + 1], 'raw', raw, 'worker_id', ARGV[3], 'at', ARGV[4])
    redis.call('HDEL', claims, tag)
    -- What was claimed unread has its ledger under its bytes' hash; a conflict's ledger is the other job's.
    if job_id == '' then redis.call('DEL', prefix .. 'attempts:#' .. redis.sha1hex(raw)) end
    if job_id ~= '' then stop_running(tag, job_id) end
    let_go(incarnation .. '/' .. tag, holds, 'unstarted')
  end
  replies[#replies + 1] = record and 1 or 0
end
if redis.call('HLEN', claims) == 0 then redis.call('SREM', claimants, incarnation) end
return replies
