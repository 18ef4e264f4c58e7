-- Moves claimed jobs to those that wait for a retry, and adds the failed attempt to their ledger.
--
-- KEYS[1] claims of this incarnation   KEYS[2] jobs that wait   KEYS[3] incarnations that hold claims   KEYS[4] jobs that run
-- ARGV[1] prefix of all keys           ARGV[2] the incarnation   ARGV[3] settled_ttl_seconds
-- ARGV[4..] for each job: tag, job_id, fingerprint, delay in ms, attempt as JSON, how what it holds is let go (claims.lua), tokens
--           spent
--
-- Whose attempts the ledger holds is written beside it, by fingerprint and by the hash of the bytes: while no claim says who has the
-- job_id, that tells another job under it (standing.lua).
--
-- Returns for each job: 1 it waits, 0 the claim is gone. A repeat finds no claim and changes nothing, and finds its attempt in
-- the ledger, by which it knows that it was done.

local claims, waiting, claimants, running = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, incarnation, ttl = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- include claims
-- include running

local replies = {}
for i = 4, #ARGV, 7 do
  local tag, job_id, fingerprint = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local attempts, claim = prefix .. 'attempts:' .. job_id, incarnation .. '/' .. tag
  local record = redis.call('HGET', claims, tag)
  if record then
    local list, _, _, holds, raw = parts_of(record)
    redis.call('ZADD', waiting, now_ms + ARGV[i + 3], claim .. '\n' .. list .. '\n' .. raw)
    redis.call('SET', prefix .. 'retried:' .. job_id, fingerprint .. ' ' .. redis.sha1hex(raw), 'EX', ttl)
    redis.call('RPUSH', attempts, ARGV[i + 4])
    redis.call('EXPIRE', attempts, ttl)
    redis.call('HDEL', claims, tag)
    stop_running(tag, job_id)
    let_go(claim, holds, ARGV[i + 5], ARGV[i + 6])
  end
  local is_done = record or redis.call('LPOS', attempts, ARGV[i + 4])
  replies[#replies + 1] = is_done and 1 or 0
end
if redis.call('HLEN', claims) == 0 then redis.call('SREM', claimants, incarnation) end
return replies
