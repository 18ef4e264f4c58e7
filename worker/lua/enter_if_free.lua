-- Begins a run of a worker under its worker_id, if no other run has the lease.
--
-- KEYS[1] leases (hash: worker_id -> 'incarnation counter lease_ms')
-- ARGV[1] worker_id   ARGV[2] incarnation   ARGV[3] lease_ms   ARGV[4] how long the leases are kept, in seconds
--
-- Returns '' if the lease is this incarnation's now, else the lease that is in the way. A repeat finds its own lease.

local lease = redis.call('HGET', KEYS[1], ARGV[1])
if lease and string.match(lease, '^(%S+) ') ~= ARGV[2] then return lease end
if not lease then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' 0 ' .. ARGV[3]) end
redis.call('EXPIRE', KEYS[1], ARGV[4])
return ''
