-- Moves the level of an adaptive pool, if it is still the one that the writer decided on; or only looks at it.
--
-- KEYS[1] the pool (hash)   KEYS[2] the shortest times of its models (hash: era and kind of job -> ms)
-- ARGV[1] prefix of all keys   ARGV[2] the pool
-- ARGV[3] the version that the level is to have, '' for one that nobody has moved yet
-- ARGV[4] its version from now on, which no other write has; '' to look only
-- ARGV[5] how many arguments follow that are field, value, … of the level; the value 'now' stands for Redis' time
-- then kind, ms, … with '' for ms where only what is known is asked for
--
-- Returns {now_ms, 1 if the pool is adaptive, else 0 and nothing was done, 1 if the write stands, 1 if the level was in the way of
-- a job, max_concurrency, the level as field, value, …, the shortest ms of each kind}.
--
-- A repeat after a lost reply finds its own version and says the same. Where yet another write came between, the writer decides
-- anew: by then what it saw belongs to a time before that write, or is one answer among many.

local pool_hash, paces = KEYS[1], KEYS[2]
local prefix, pool, incarnation = ARGV[1], ARGV[2], ''
local expected, version, last_field = ARGV[3], ARGV[4], 5 + tonumber(ARGV[5])
local PACES_LAST_MS = 86400000
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Who started last says whether the pool is adaptive; where that is lost, whoever adapts says so.
local of_pool = redis.call('HMGET', pool_hash, 'max_concurrency', 'adaptive')
if not of_pool[1] or of_pool[2] == '0' then return {now_ms, 0, 0, 0, 0, {}, {}} end
if not of_pool[2] then redis.call('HSET', pool_hash, 'adaptive', '1') end

-- include level

keep_level()

-- include claims
-- include pool

local most = tonumber(of_pool[1])
local is_full = used >= limit or (requests_left > 0 and redis.call('ZCARD', waiters) > 0)

local function level_fields()
  local fields, values = {}, redis.call('HMGET', pool_hash, unpack(LEVEL_FIELDS))
  for i, name in ipairs(LEVEL_FIELDS) do fields[name] = values[i] or '' end
  return fields
end

local before = level_fields()
local now = before

local function write()
  for i = 6, last_field, 2 do
    local value = ARGV[i + 1] == 'now' and string.format('%d', now_ms) or ARGV[i + 1]
    redis.call('HSET', pool_hash, ARGV[i], value)
  end
  redis.call('HSET', pool_hash, 'level_version', version)
  now = level_fields()
  if (tonumber(now.level_era) or 0) ~= (tonumber(before.level_era) or 0) then redis.call('DEL', paces) end
  limit = math.max(1, math.min(most, tonumber(now.level)))
  call_who_waits()
end

local stands = false
if version ~= '' then
  stands = before.level_version == version or before.level_version == expected
  if before.level_version == expected then write() end
end

-- Of what several workers have found the shortest stands, whoever comes first.
local shortest = {}
for i = last_field + 1, #ARGV, 2 do
  local there, ms = redis.call('HGET', paces, ARGV[i]), ARGV[i + 1]
  if ms ~= '' and tonumber(ms) < (tonumber(there) or math.huge) then
    redis.call('HSET', paces, ARGV[i], ms)
    redis.call('PEXPIRE', paces, PACES_LAST_MS)
    there = ms
  end
  shortest[#shortest + 1] = there or ''
end

local stored = {}
for name, value in pairs(now) do
  stored[#stored + 1] = name
  stored[#stored + 1] = value
end
return {now_ms, 1, stands and 1 or 0, is_full and 1 or 0, most, stored, shortest}
