-- Gives back slots whose inferences are known to be over before they lapse: their server refuses connections, or their model's
-- process is dead.
--
-- KEYS[1] the slots of a pool (sorted set)   KEYS[2] the workers that wait (sorted set)
-- ARGV[1] prefix of all keys   ARGV[2] the incarnation   ARGV[3] the pool
-- ARGV[4..] the slots
--
-- Returns how many there were. A repeat finds none.

local prefix, incarnation, pool = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- include claims
-- include pool

local freed = 0
for i = 4, #ARGV do
  if give_slot_back(pool_key, ARGV[i]) then freed, used = freed + 1, used - 1 end
end

call_who_waits()
return freed
