-- Drops the claims of jobs that are there a second time: the other one is settled, or is in another claim.
--
-- KEYS[1] claims of this incarnation   KEYS[2] incarnations that hold claims   KEYS[3] jobs that run
-- ARGV[1] prefix of all keys           ARGV[2] the incarnation
-- ARGV[3..] for each: tag, job_id
--
-- Returns for each: 1 it is dropped, 0 the claim is gone, 2 the other one is no more to be found: nothing was done.
-- A repeat finds no claim and changes nothing.

local claims, claimants, running = KEYS[1], KEYS[2], KEYS[3]
local prefix, incarnation = ARGV[1], ARGV[2]

-- include claims
-- include running
-- include unremembered
-- include standing

local replies = {}
for i = 3, #ARGV, 2 do
  local tag, job_id = ARGV[i], ARGV[i + 1]
  local record = redis.call('HGET', claims, tag)
  if not record then
    replies[#replies + 1] = 0
  elseif standing_among_others(tag, job_id) ~= '' then
    -- Asked again here, since the other one may have gone back to its queue since this one was claimed: that would be fine,
    -- but for one that was buried under the same job_id, which would take both away.
    redis.call('HDEL', claims, tag)
    stop_running(tag, job_id)
    local _, _, _, holds = parts_of(record)
    let_go(incarnation .. '/' .. tag, holds, 'unstarted')
    replies[#replies + 1] = 1
  else
    replies[#replies + 1] = 2
  end
end
if redis.call('HLEN', claims) == 0 then redis.call('SREM', claimants, incarnation) end
return replies
