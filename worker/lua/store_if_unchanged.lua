-- Writes a circuit, if it is still the one that the writer decided on.
--
-- KEYS[1] the circuit (hash)
-- ARGV[1] the version it is to have, '' for none at all   ARGV[2] its version from now on, which no other write has
-- ARGV[3] how long it is kept, in ms; 0 for always         ARGV[4..] field, value, …
--
-- Returns {now_ms, 1 if it stands written, the fields that stand there instead as field, value, …}.
--
-- A repeat after a lost reply finds its own version and says the same. Where yet another write came between, it is told of that
-- one, and its writer decides anew: calls may be counted twice then, which opens a circuit sooner and never later.

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local version = redis.call('HGET', KEYS[1], 'version') or ''
if version ~= ARGV[2] then
  if version ~= ARGV[1] then return {now_ms, 0, redis.call('HGETALL', KEYS[1])} end
  redis.call('HSET', KEYS[1], 'version', ARGV[2], unpack(ARGV, 4))
  if ARGV[3] == '0' then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
end
return {now_ms, 1, {}}
