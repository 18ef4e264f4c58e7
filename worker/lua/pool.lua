-- Included: what a pool grants, in one place. Expects the locals prefix, incarnation, now_ms and pool (its name), and
-- claims included.
--
-- A slot, a request and tokens are granted together or not at all; who is refused hears which limit it was and when to ask
-- again. Slots are members of a sorted set by the time at which they lapse at the latest, so that what a dead holder leaves
-- behind comes back by itself. All times are Redis' own.

-- include bucket

local MINUTE_MS = 60000
local RECENTLY_MS = 60000    -- How long a model that had work has a slot kept for it.
local BORROWED_SHARE = 0.25  -- So much of a pool can always be borrowed, however many models have slots kept.
local TOKENS_PER_BYTE = 0.25 -- The estimate of a prompt before its model has shown its true counts.
local PATIENCE_MS = 100      -- Who waits less lets others go first: handing a slot over costs more than keeping it busy.
local CALL_MS = 250          -- Who is called and does not come loses its turn: it may be dead.
local MOST_CALLED = 16
local MOST_WANTED = 20
local SLOTS_LOOK_MS = 5000

local pool_key = prefix .. 'pool:' .. pool
local slots, grants, waiters = pool_key .. ':slots', pool_key .. ':grants', pool_key .. ':waiting'
local active, wants = pool_key .. ':active', pool_key .. ':wants'
local thirsty = pool_key .. ':thirsty'

local limits = redis.call('HMGET', pool_key, 'max_concurrency', 'requests_per_minute', 'tokens_per_minute', 'kept_slots',
  'level', 'level_until_ms')
local limit = tonumber(limits[1]) or 1
local requests_per_minute, tokens_per_minute = tonumber(limits[2]), tonumber(limits[3])
local kept_by_model = cjson.decode(limits[4] or '{}')
if tonumber(limits[5]) and now_ms < (tonumber(limits[6]) or math.huge) then
  limit = math.max(1, math.min(limit, math.floor(tonumber(limits[5])))) -- An adaptive pool stands there (level.lua).
end

-- How many slots each model has is counted beside them: a pool may have thousands. What has lapsed is not counted any more.
local counts = pool_key .. ':used'
local used = redis.call('ZCARD', slots)
if used > 0 then
  for _, slot in ipairs(redis.call('ZRANGEBYSCORE', slots, '-inf', now_ms)) do
    if give_slot_back(pool_key, slot) then used = used - 1 end
  end
end
local all_are_free = used == 0
if all_are_free then redis.call('DEL', counts) end

local known_by_model = {}
local function used_by(model)
  if not known_by_model[model] then
    known_by_model[model] = all_are_free and 0 or tonumber(redis.call('HGET', counts, model)) or 0
  end
  return known_by_model[model]
end

-- A slot's set, and what is counted of it, live as long as its last slot.
local function keep_slots()
  local last = redis.call('ZRANGE', slots, -1, -1, 'WITHSCORES')
  if not last[2] then return end
  local end_ms = string.format('%d', tonumber(last[2]) + 1)
  redis.call('PEXPIREAT', slots, end_ms)
  redis.call('PEXPIREAT', counts, end_ms)
end

-- Counts that a refused command has made wrong are made right now and then.
local function count_again()
  redis.call('DEL', counts)
  for _, member in ipairs(redis.call('ZRANGE', slots, 0, -1)) do
    redis.call('HINCRBY', counts, string.match(member, '^([^\n]*)\n'), 1)
  end
  keep_slots()
  known_by_model = {}
end

local requests_left = math.huge
if requests_per_minute then
  redis.call('ZREMRANGEBYSCORE', grants, '-inf', now_ms - MINUTE_MS)
  requests_left = requests_per_minute - redis.call('ZCARD', grants)
end

local function kept(model)
  return tonumber(kept_by_model[model]) or 1
end

-- Idle slots that are kept for models that had work lately.
local active_models
local function kept_for_others(model)
  if not active_models then
    active_models = redis.call('ZRANGEBYSCORE', active, now_ms - RECENTLY_MS, '+inf')
    for i = 1, #active_models, 1000 do
      local known = redis.call('HMGET', counts, unpack(active_models, i, math.min(i + 999, #active_models)))
      for j = 1, #known do
        local other = active_models[i + j - 1]
        known_by_model[other] = known_by_model[other] or tonumber(known[j]) or 0
      end
    end
  end
  local sum = 0
  for _, other in ipairs(active_models) do
    if other ~= model then sum = sum + math.max(0, kept(other) - used_by(other)) end
  end
  return math.min(sum, math.floor(limit * (1 - BORROWED_SHARE)))
end

local function is_below_its_share(model)
  return used_by(model) < kept(model)
end

local function turn_of(name)
  return pool_key .. ':turn:' .. name
end

-- Those of a line, longest first, but for this one and for who was called and did not come.
local function others_in(line)
  local others, found = {}, redis.call('ZRANGE', line, 0, MOST_CALLED, 'WITHSCORES')
  for i = 1, #found, 2 do
    local name, since = found[i], tonumber(found[i + 1])
    if name ~= incarnation then
      local called = tonumber(redis.call('GETEX', turn_of(name)))
      if called and now_ms - called > CALL_MS then
        redis.call('ZREM', waiters, name)
        redis.call('ZREM', thirsty, name)
        redis.call('HDEL', wants, name, name .. '/tokens')
        redis.call('DEL', turn_of(name))
      else
        others[#others + 1] = {name = name, since = since, is_called = called ~= nil}
      end
    end
  end
  return others
end

local function give_turn_to(other)
  if not other.is_called then redis.call('SET', turn_of(other.name), string.format('%d', now_ms), 'PX', MINUTE_MS) end
end

-- Asking for it makes the server tell this connection when somebody sets it (client-side caching).
local function listen_for_turn()
  redis.call('DEL', turn_of(incarnation))
  redis.call('EXISTS', turn_of(incarnation))
end

-- Most often nobody waits for anything: that is asked once. Whoever begins to wait in this call is this one itself.
local anyone_waits = redis.call('EXISTS', waiters, thirsty) > 0

-- Who waits for a slot or a request.
local others_waiting
local function who_waits()
  if others_waiting then return others_waiting end
  others_waiting = anyone_waits and others_in(waiters) or {}
  for _, other in ipairs(others_waiting) do
    other.models = {}
    for model in string.gmatch(redis.call('HGET', wants, other.name) or '', '%S+') do
      other.models[#other.models + 1] = model
    end
  end
  return others_waiting
end

-- Whether one that waits may have a slot that is kept for one of its models, by now.
local function is_entitled(other)
  for _, model in ipairs(other.models) do
    if is_below_its_share(model) then return true end
  end
  return false
end

local own_since = anyone_waits and tonumber(redis.call('ZSCORE', waiters, incarnation)) or nil
local was_granted = false

-- How many of those who wait come before this one, which asks for a slot that is kept for its model or for any.
local function ahead(asks_for_its_share)
  local since = not was_granted and own_since or now_ms + 1
  local count = 0
  for _, other in ipairs(who_waits()) do
    if other.since < since then
      local has_a_better_claim = is_entitled(other) and not asks_for_its_share
      local has_waited = is_entitled(other) == asks_for_its_share
        and (other.is_called or now_ms - other.since >= PATIENCE_MS)
      if has_a_better_claim or has_waited then count = count + 1 end
    end
  end
  return count
end

-- The limit that stands in the way of one more inference of a model, nil for none.
local function limit_in_the_way(model)
  local asks_for_its_share = is_below_its_share(model)
  local free = limit - used
  if free > 0 and not asks_for_its_share then free = free - kept_for_others(model) end
  if free <= 0 then return 'slots' end
  if requests_left <= 0 then return 'requests' end
  if math.min(free, requests_left) <= ahead(asks_for_its_share) then return 'turn' end
  return nil
end

local function grant(model, claim, lapse_ms)
  redis.call('ZADD', slots, lapse_ms, model .. '\n' .. claim)
  used, known_by_model[model] = used + 1, used_by(model) + 1
  redis.call('HINCRBY', counts, model, 1)
  if requests_per_minute then
    redis.call('ZADD', grants, now_ms, claim)
    requests_left = requests_left - 1
  end
  was_granted = true
end

local function keep_grants()
  keep_slots()
  if requests_per_minute then redis.call('PEXPIRE', grants, MINUTE_MS) end
end

local function are_active(models)
  local now_and_model = {}
  for i, model in ipairs(models) do now_and_model[2 * i - 1], now_and_model[2 * i] = now_ms, model end
  for i = 1, #now_and_model, 2000 do
    redis.call('ZADD', active, unpack(now_and_model, i, math.min(i + 1999, #now_and_model)))
  end
  redis.call('EXPIRE', active, 86400)
end

-- include thirst

-- When a refused one is to ask again, in ms, unless it is called before; -1: it finds out at its next look.
local function ask_again_ms(limit_met)
  if limit_met == 'slots' then
    local first = redis.call('ZRANGE', slots, 0, 0, 'WITHSCORES')
    return first[2] and math.min(SLOTS_LOOK_MS, math.max(1, tonumber(first[2]) - now_ms)) or -1
  elseif limit_met == 'requests' then
    -- Each who waits has a time of its own: the n-th asks when the n-th request leaves the minute.
    local place = redis.call('ZRANK', waiters, incarnation) or redis.call('ZCARD', waiters)
    local oldest = redis.call('ZRANGE', grants, place, place, 'WITHSCORES')
    return oldest[2] and math.max(1, tonumber(oldest[2]) + MINUTE_MS + 1 - now_ms) or SLOTS_LOOK_MS
  end
  return CALL_MS -- If the one that was called does not come, nobody else may notice.
end

-- A place in the line is kept until something is granted.
local function wait_in_line(models)
  if was_granted or not own_since then redis.call('ZADD', waiters, now_ms, incarnation) end
  redis.call('HSET', wants, incarnation, table.concat(models, ' ', 1, math.min(#models, MOST_WANTED)))
  redis.call('EXPIRE', waiters, 3600)
  redis.call('EXPIRE', wants, 3600)
  listen_for_turn()
end

local function leave_the_line()
  if not own_since then return end
  redis.call('ZREM', waiters, incarnation)
  redis.call('HDEL', wants, incarnation)
  redis.call('DEL', turn_of(incarnation))
end

-- Whether there is room for one that waits, once so many slots have gone to those before it.
local function has_room(other, given)
  local free = limit - used - given
  if is_entitled(other) then return free > 0 end
  for _, model in ipairs(other.models) do
    if free > kept_for_others(model) then return true end
  end
  return false
end

-- Calls as many of those who wait as there is room for: first who waits for what is its model's share.
local function call_who_waits()
  call_who_is_thirsty()
  local given, most = 0, math.min(limit - used, requests_left)
  if most <= 0 then return end
  for _, entitled in ipairs({true, false}) do
    for _, other in ipairs(who_waits()) do
      if given >= most then return end
      if is_entitled(other) == entitled and has_room(other, given) then
        give_turn_to(other)
        given = given + 1
      end
    end
  end
end
