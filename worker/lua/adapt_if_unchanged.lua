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
local PACES_LAST_MS, REQUESTS_MS = 86400000, 60000
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Who started last says whether the pool is adaptive; where that is lost, whoever adapts says so.
local of_pool = redis.call('HMGET', pool_hash, 'max_concurrency', 'adaptive', 'requests_per_minute')
if not of_pool[1] or of_pool[2] == '0' then return {now_ms, 0, 0, 0, 0, {}, {}} end
if not of_pool[2] then redis.call('HSET', pool_hash, 'adaptive', '1') end
local most, requests_per_minute = tonumber(of_pool[1]), tonumber(of_pool[3])

-- include level

keep_level()
local values = redis.call('HMGET', pool_hash, unpack(LEVEL_FIELDS))
local before = {}
for i, name in ipairs(LEVEL_FIELDS) do before[name] = values[i] or '' end

-- Counted, and not looked through as for a grant: every worker asks, and a large pool has thousands of slots.
local function level_is_in_the_way()
  local used = redis.call('ZCOUNT', pool_hash .. ':slots', '(' .. now_ms, '+inf')
  if used >= math.min(most, tonumber(before.level) or most) then return true end
  if redis.call('ZCARD', pool_hash .. ':waiting') == 0 then return false end
  local granted = redis.call('ZCOUNT', pool_hash .. ':grants', '(' .. (now_ms - REQUESTS_MS), '+inf')
  return granted < (requests_per_minute or math.huge)
end

local is_full = level_is_in_the_way()

local function call_those_with_room()
-- include pool
  call_who_waits()
end

local function write()
  for i = 6, last_field, 2 do
    local value = ARGV[i + 1] == 'now' and string.format('%d', now_ms) or ARGV[i + 1]
    redis.call('HSET', pool_hash, ARGV[i], value)
  end
  redis.call('HSET', pool_hash, 'level_version', version)
  values = redis.call('HMGET', pool_hash, unpack(LEVEL_FIELDS))
  local after = {}
  for i, name in ipairs(LEVEL_FIELDS) do after[name] = values[i] or '' end
  if (tonumber(after.level_era) or 0) ~= (tonumber(before.level_era) or 0) then redis.call('DEL', paces) end
  if tonumber(after.level) > (tonumber(before.level) or 0) then call_those_with_room() end
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
for i, name in ipairs(LEVEL_FIELDS) do
  stored[#stored + 1] = name
  stored[#stored + 1] = values[i] or ''
end
return {now_ms, 1, stands and 1 or 0, is_full and 1 or 0, most, stored, shortest}
