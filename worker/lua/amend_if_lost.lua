-- Replaces attempts that were written down as lost with what really became of them: their worker only seemed dead.
--
-- KEYS[1..] the ledgers of the jobs
-- ARGV      for each: the attempt as it was written down, the attempt as it was
--
-- Returns for each: 1 replaced, 0 it is not there (the job has ended meanwhile). A repeat finds nothing to replace.

local replies = {}
for i = 1, #KEYS do
  local place = redis.call('LPOS', KEYS[i], ARGV[2 * i - 1])
  if place then redis.call('LSET', KEYS[i], place, ARGV[2 * i]) end
  replies[i] = place and 1 or 0
end
return replies
