-- Puts claimed jobs back to the front of the lists they came from, uncharged. The last one given is next in line.
--
-- KEYS[1] claims of this incarnation   KEYS[2] incarnations that hold claims   KEYS[3] jobs that run
-- ARGV[1] prefix of all keys           ARGV[2] the incarnation   ARGV[3] settled_ttl_seconds
-- ARGV[4..] for each job: tag, attempt as JSON for one that may have reached the runtime, else ''
--
-- Returns for each job: 1 it is back, 0 the claim is gone. A repeat finds no claim and changes nothing.

local claims, claimants, running = KEYS[1], KEYS[2], KEYS[3]
local prefix, incarnation, ttl = ARGV[1], ARGV[2], ARGV[3]

-- include claims
-- include running

-- A probe lets the next one go first, so that no single job can hold a circuit open.
local function put_back(list, raw, was_probe)
  local following = was_probe and redis.call('RPOP', list)
  redis.call('RPUSH', list, raw)
  if following then redis.call('RPUSH', list, following) end
end

local replies = {}
for i = 4, #ARGV, 2 do
  local tag, attempt = ARGV[i], ARGV[i + 1]
  local record = redis.call('HGET', claims, tag)
  if record then
    local list, job_id, _, holds, raw = parts_of(record)
    local probed = select(5, holdings(holds))
    put_back(list, raw, attempt == '' and probed and probed ~= '-')
    redis.call('HDEL', claims, tag)
    if job_id ~= '' then
      stop_running(tag, job_id)
      if attempt ~= '' then
        redis.call('RPUSH', prefix .. 'attempts:' .. job_id, attempt)
        redis.call('EXPIRE', prefix .. 'attempts:' .. job_id, ttl)
      end
    end
    let_go(incarnation .. '/' .. tag, holds, attempt == '' and 'unstarted' or 'on')
  end
  replies[#replies + 1] = record and 1 or 0
end
if redis.call('HLEN', claims) == 0 then redis.call('SREM', claimants, incarnation) end
return replies
