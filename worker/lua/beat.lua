-- Writes a worker's health and its places in the registries, by Redis' time.
--
-- KEYS[1] the worker's health (hash)   KEYS[2] the registry of workers (sorted set: worker_id by last heartbeat)
-- KEYS[3] what gateways need to check jobs (hash: public name -> JSON)
-- KEYS[4] public names by when a worker last declared them (sorted set)   KEYS[5] public names that are paused (set)
-- ARGV[1] prefix of all keys   ARGV[2] worker_id   ARGV[3] how long the health key lives, in ms   ARGV[4] the time, RFC 3339
-- ARGV[5] 1 if all fields are given and replace what is there, 0 if only those that changed
-- then four lists, each after its length: field, value, …; public names that the worker takes jobs of; public names that it
-- no longer takes jobs of; public name, declaration (JSON without its closing brace), …
--
-- Returns {Redis' unix ms, 1 if it was written, {public names that are paused}}. Nothing is written, and 0 returned, where only
-- changes were given and there is no health that they could be changes of.
--
-- A repeat writes the same again.

local prefix, worker_id, ttl_ms, now_text, whole = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5] == '1'
local A_DAY_MS, A_WEEK_MS = 86400000, 604800000

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local paused = redis.call('SMEMBERS', KEYS[5])
if not whole and redis.call('EXISTS', KEYS[1]) == 0 then return {now_ms, 0, paused} end

local at = 6
local function next_list()
  local first = at + 1
  at = first + tonumber(ARGV[at])
  return first, at - 1
end

-- A full server refuses this and so the whole beat, by which the worker is seen not to work; what comes after a first write it
-- would let pass.
redis.call('HSET', KEYS[1], 'heartbeat_at', now_text)
local first, last = next_list()
if whole then redis.call('DEL', KEYS[1]) end
if last > first then redis.call('HSET', KEYS[1], unpack(ARGV, first, last)) end
redis.call('PEXPIRE', KEYS[1], ttl_ms)
redis.call('ZADD', KEYS[2], now_ms, worker_id)
-- Who has been silent for a day is not waited for: ids made of host names would add up for ever.
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now_ms - A_DAY_MS)

local function workers_of(model) return prefix .. 'model:' .. model .. ':workers' end

local is_paused = {}
for _, model in ipairs(paused) do is_paused[model] = true end
first, last = next_list()
for i = first, last do
  -- The worker may not have heard yet of a pause that routing has seen already.
  if is_paused[ARGV[i]] then
    redis.call('ZREM', workers_of(ARGV[i]), worker_id)
  else
    redis.call('ZADD', workers_of(ARGV[i]), now_ms, worker_id)
  end
end
first, last = next_list()
for i = first, last do redis.call('ZREM', workers_of(ARGV[i]), worker_id) end

-- Only a worker knows how often it beats, so nobody's place is old by another's measure: it is kept while its health lives and
-- its last heartbeat renewed it.
local function rid_of_the_dead(model)
  local old = redis.call('ZRANGEBYSCORE', workers_of(model), '-inf', '(' .. (now_ms - ttl_ms), 'WITHSCORES')
  for i = 1, #old, 2 do
    local beat = redis.call('ZSCORE', KEYS[2], old[i])
    if beat ~= old[i + 1] or redis.call('EXISTS', prefix .. 'worker:' .. old[i]) == 0 then
      redis.call('ZREM', workers_of(model), old[i])
    end
  end
end

first, last = next_list()
for i = first, last, 2 do
  local model, declaration = ARGV[i], ARGV[i + 1]
  local known = redis.call('HGET', KEYS[3], model)
  if not known or string.sub(known, 1, #declaration + 9) ~= declaration .. ',"since":' then
    redis.call('HSET', KEYS[3], model, declaration .. ',"since":"' .. now_text .. '"}')
  end
  redis.call('ZADD', KEYS[4], now_ms, model)
  rid_of_the_dead(model)
end
for _, model in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now_ms - A_WEEK_MS, 'LIMIT', 0, 100)) do
  redis.call('HDEL', KEYS[3], model)
  redis.call('ZREM', KEYS[4], model)
  redis.call('DEL', workers_of(model))
end
return {now_ms, 1, paused}
