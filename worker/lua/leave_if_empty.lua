-- Ends a run of a worker: its lease goes, unless claims are left, which another worker is then to find by it.
--
-- KEYS[1] leases   KEYS[2] claims of this incarnation
-- ARGV[1] worker_id   ARGV[2] incarnation
--
-- Returns 1 if the lease is gone or another's, 0 if claims are left. A repeat finds no lease.

if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local lease = redis.call('HGET', KEYS[1], ARGV[1])
if lease and string.match(lease, '^(%S+) ') == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
return 1
