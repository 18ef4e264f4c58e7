-- Calls workers that wait for a pool's slots or requests, as many as there is room for: after slots were given back by one that
-- claims nothing itself.
--
-- KEYS[1] the workers that wait (sorted set: incarnation by since when)
-- ARGV[1] prefix of all keys   ARGV[2] the incarnation that asks   ARGV[3] the pool
--
-- Returns nothing. A repeat calls nobody a second time.

local prefix, incarnation, pool = ARGV[1], ARGV[2], ARGV[3]
if redis.call('ZCARD', KEYS[1]) == 0 then return end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- include pool

call_who_waits()
