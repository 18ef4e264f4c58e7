-- Puts claimed jobs back to the front of the lists they came from, uncharged. The last one given is next in line.
--
-- KEYS[1] claims of this incarnation   KEYS[2] incarnations that hold claims   KEYS[3] jobs that run
-- ARGV[1] prefix of all keys           ARGV[2] the incarnation   ARGV[3] settled_ttl_seconds
-- ARGV[4..] for each job: tag, attempt as JSON for one that may have reached the runtime, else ''
--
-- Returns for each job: 1 it is back, 0 the claim is gone. A repeat finds no claim and changes nothing.

local claims, claimants, running = KEYS[1], KEYS[2], KEYS[3]
local prefix, incarnation, ttl = ARGV[1], ARGV[2], ARGV[3]

local replies = {}
for i = 4, #ARGV, 2 do
  local tag, attempt = ARGV[i], ARGV[i + 1]
  local record = redis.call('HGET', claims, tag)
  if record then
    local list, job_id, raw = string.match(record, '^([^\n]*)\n([^\n]*)\n[^\n]*\n(.*)$')
    redis.call('RPUSH', list, raw)
    redis.call('HDEL', claims, tag)
    if job_id ~= '' then
      if redis.call('HGET', running, job_id) == incarnation .. '/' .. tag then redis.call('HDEL', running, job_id) end
      if attempt ~= '' then
        redis.call('RPUSH', prefix .. 'attempts:' .. job_id, attempt)
        redis.call('EXPIRE', prefix .. 'attempts:' .. job_id, ttl)
      end
    end
  end
  replies[#replies + 1] = record and 1 or 0
end
if redis.call('HLEN', claims) == 0 then redis.call('SREM', claimants, incarnation) end
return replies
