-- Settles jobs: entry, result and marker are written and the claim is dropped in one step.
--
-- KEYS[1] claims of this incarnation   KEYS[2] the settlement stream   KEYS[3] incarnations that hold claims
-- KEYS[4] jobs that run
-- ARGV[1] prefix of all keys           ARGV[2] the incarnation
-- ARGV[3] result_ttl_seconds           ARGV[4] settled_ttl_seconds
-- ARGV[5..] for each job: tag, job_id, model, status, fingerprint, result as JSON, 1 if a cancellation is to be heeded,
--           what the claim holds, how that is let go (claims.lua), tokens spent, those of its prompt
--
-- Returns for each job: 1 settled, 0 was settled before by another claim (this one is dropped), -1 the claim is gone,
-- 2 nothing was done, since the job was cancelled meanwhile and this is not the result that says so.
--
-- A repeat after a lost reply returns the same: the marker names the claim it was settled under. A server that refuses the
-- marker or the entry leaves the claim as it was; one that refuses what comes after them is asked again for the rest.

local claims, settlements, claimants, running = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, incarnation = ARGV[1], ARGV[2]
local result_ttl, settled_ttl = ARGV[3], ARGV[4]

-- include claims
-- include running
-- include unremembered

local function drop(tag, job_id, ...)
  redis.call('HDEL', claims, tag)
  stop_running(tag, job_id)
  let_go(incarnation .. '/' .. tag, ...)
end

-- A run that was written down as lost may have turned out to have ended, after its ledger was read for this result.
local function with_late_attempts(job_id, result)
  local LOST = '"code":"worker_lost","inference_ms":null,"usage":null}'
  if not string.find(result, LOST, 1, true) then return result end
  for _, attempt in ipairs(redis.call('LRANGE', prefix .. 'attempts:' .. job_id, 0, -1)) do
    local known_by = string.match(attempt, '^(.*)"code":"lease_lost"')
    if known_by then
      local first, last = string.find(result, known_by .. LOST, 1, true)
      if first then result = string.sub(result, 1, first - 1) .. attempt .. string.sub(result, last + 1) end
    end
  end
  return result
end

local function settle(tag, job_id, model, status, fingerprint, result, heed_cancel, ...)
  local marker = prefix .. 'settled:' .. job_id
  local claim = incarnation .. '/' .. tag
  local settled_under = redis.call('HGET', marker, 'claim')
  if redis.call('HEXISTS', claims, tag) == 0 then return settled_under == claim and 1 or -1 end
  if settled_under and settled_under ~= claim then
    drop(tag, job_id, ...)
    return 0
  end
  result = with_late_attempts(job_id, result)
  if not settled_under then
    if heed_cancel == '1' and is_there(prefix .. 'cancel:' .. job_id) then return 2 end
    -- The marker stands before the entry: where a later command is refused, the repeat finds it and only ends what was begun.
    redis.call('HSET', marker, 'claim', claim)
    local stream_id = redis.pcall('XADD', settlements, '*',
      'job_id', job_id, 'status', status, 'model', model, 'result', result)
    if type(stream_id) == 'table' then
      redis.call('DEL', marker)
      error(stream_id.err)
    end
    redis.call('HSET', marker, 'fingerprint', fingerprint, 'status', status, 'stream_id', stream_id)
  end
  redis.call('EXPIRE', marker, settled_ttl)
  redis.call('SET', prefix .. 'result:' .. job_id, result, 'EX', result_ttl)
  redis.call('DEL', prefix .. 'attempts:' .. job_id, prefix .. 'retried:' .. job_id)
  drop(tag, job_id, ...)
  return 1
end

local replies = {}
local WORDS = 11
for i = 5, #ARGV, WORDS do
  replies[#replies + 1] = settle(unpack(ARGV, i, i + WORDS - 1))
end
if redis.call('HLEN', claims) == 0 then redis.call('SREM', claimants, incarnation) end
return replies
