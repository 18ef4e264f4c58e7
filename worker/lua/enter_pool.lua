-- Sets a pool's limits: the newest start wins.
--
-- KEYS[1] the pool (hash)
-- ARGV[1] prefix of all keys   ARGV[2] worker_id   ARGV[3] the pool
-- ARGV[4..] field, value, …
--
-- Returns the limits that were replaced as field, value, …; nothing where there were none or they were the same. A repeat
-- finds its own. A pool that becomes adaptive begins with its first level, before anything is claimed; tokens that were put by under
-- a higher limit are not granted under a lower one.

local pool_hash = KEYS[1]
local prefix, incarnation, pool = ARGV[1], ARGV[2], ARGV[3]
local OFF = {adaptive = '0'} -- What a limit is that nobody has set yet; the others are ''.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- include claims

local replaced = {}
local tokens_before = tonumber(redis.call('HGET', pool_hash, 'tokens_per_minute') or nil)
local is_there = redis.call('HEXISTS', KEYS[1], 'max_concurrency') == 1
for i = 4, #ARGV, 2 do
  local before = redis.call('HGET', KEYS[1], ARGV[i]) or OFF[ARGV[i]] or ''
  if is_there and before ~= ARGV[i + 1] then
    replaced[#replaced + 1] = ARGV[i]
    replaced[#replaced + 1] = before
  end
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'set_by', ARGV[2], 'set_at', string.format('%d', now_ms))
redis.call('EXPIRE', KEYS[1], 86400)

local tokens_now = tonumber(redis.call('HGET', pool_hash, 'tokens_per_minute') or nil)
if tokens_now and tokens_now ~= tokens_before then
  local left = tokens_in(pool_hash, tokens_before or tokens_now, now_ms)
  redis.call('HSET', pool_hash, 'tokens_level', math.min(left, tokens_now * BURST_SHARE),
    'tokens_at_ms', string.format('%d', now_ms))
end

-- include level

if redis.call('HGET', pool_hash, 'adaptive') == '1' then keep_level() else drop_level() end

-- include pool

-- Whoever waits for tokens does so for as long as it would take under the old limit.
if tokens_now ~= tokens_before then
  for _, name in ipairs(redis.call('ZRANGE', thirsty, 0, -1)) do give_turn_to({name = name}) end
end

if #replaced > 0 then call_who_waits() end
return replaced
