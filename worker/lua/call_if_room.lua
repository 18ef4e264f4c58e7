-- Calls workers that wait for what a pool grants, as many as there is room for: after something was given back by one that claims
-- nothing itself.
--
-- KEYS[1] the workers that wait (sorted set: incarnation by since when)   KEYS[2] those that wait for tokens (likewise)
-- ARGV[1] prefix of all keys   ARGV[2] the incarnation that asks   ARGV[3] the pool
--
-- Returns nothing. A repeat calls nobody a second time.

local prefix, incarnation, pool = ARGV[1], ARGV[2], ARGV[3]
if redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 then return end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- include claims
-- include pool

call_who_waits()
