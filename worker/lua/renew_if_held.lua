-- Renews a lease by counting it up, if it is still this incarnation's, and shows everyone's.
--
-- KEYS[1] leases (hash: worker_id -> 'incarnation counter lease_ms')   KEYS[2] incarnations that hold claims (set)
-- ARGV[1] worker_id   ARGV[2] incarnation   ARGV[3] lease_ms   ARGV[4] how long the leases are kept, in seconds
--
-- Returns {1 if renewed else 0, leases as field, value, …, incarnations that hold claims}. A repeat counts up once more,
-- which says the same: this run is alive.

local lease = redis.call('HGET', KEYS[1], ARGV[1])
local held = 0
if lease then
  local incarnation, counter = string.match(lease, '^(%S+) (%d+) ')
  if incarnation == ARGV[2] then
    redis.call('HSET', KEYS[1], ARGV[1], incarnation .. ' ' .. string.format('%d', counter + 1) .. ' ' .. ARGV[3])
    redis.call('EXPIRE', KEYS[1], ARGV[4])
    held = 1
  end
end
return {held, redis.call('HGETALL', KEYS[1]), redis.call('SMEMBERS', KEYS[2])}
