-- Writes a worker's health and its place in the registry, by Redis' time.
--
-- KEYS[1] the worker's health (hash)   KEYS[2] the registry of workers (sorted set: worker_id by last heartbeat)
-- ARGV[1] worker_id                    ARGV[2] how long the health key lives, in ms
-- ARGV[3..] field, value, …
--
-- Returns Redis' unix ms. A repeat writes the same again.

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[2], now_ms, ARGV[1])
-- Who has been silent for a day is not waited for: ids made of host names would add up for ever.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now_ms - 86400000)
return now_ms
