-- Included by pool: who may have tokens, and who waits for them. They are granted in the order in which workers began to wait, to
-- nobody before there is enough for all who come first, so that no big job is overtaken for ever.

local burst = tokens_per_minute and tokens_per_minute * BURST_SHARE

local function tokens_needed(model, prompt_bytes, max_tokens)
  local per_byte = tonumber(redis.call('HGET', pool_key, 'per_byte:' .. model)) or TOKENS_PER_BYTE
  return math.ceil(prompt_bytes * per_byte) + max_tokens
end

-- A message that went back since it has to wait for tokens: what it needs is known from then on, so it keeps its place at the head
-- until they are there. GETEX is a read that the server does not remember.
local function head_of(model)
  return pool_key .. ':head:' .. model
end

local function remember_head(model, raw, prompt_bytes, max_tokens)
  redis.call('SET', head_of(model), string.format('%s %d %d', redis.sha1hex(raw), prompt_bytes, max_tokens), 'EX', 3600)
end

-- prompt_bytes, max_tokens; nil for a message that nobody has opened yet.
local function remembered_head(model, raw)
  local head = redis.call('GETEX', head_of(model))
  if not head then return nil end
  local digest, prompt_bytes, max_tokens = string.match(head, '^(%x+) (%d+) (%d+)$')
  if digest ~= redis.sha1hex(raw) then return nil end
  return tonumber(prompt_bytes), tonumber(max_tokens)
end

-- What one that waits needs of the bucket at the most, and for which model.
local function thirst_of(name)
  local needed, model = string.match(redis.call('HGET', wants, name .. '/tokens') or '', '^(%d+) (%S+)$')
  return math.min(tonumber(needed) or 0, burst or 0), model
end

local others_thirsty
local function who_is_thirsty()
  if others_thirsty then return others_thirsty end
  others_thirsty = others_in(thirsty)
  for _, other in ipairs(others_thirsty) do other.needed = thirst_of(other.name) end
  return others_thirsty
end

-- How long this one has waited for tokens, how many, and for which model; nil for not at all.
local thirst
if tokens_per_minute and anyone_waits then
  local since = tonumber(redis.call('ZSCORE', thirsty, incarnation) or nil)
  if since then
    local needed, model = thirst_of(incarnation)
    thirst = {since = since, needed = needed, model = model}
  end
end

-- How long until so many tokens are there for it, in ms; 0 where they are.
local function tokens_wait_ms(model, needed)
  local missing = math.min(needed, burst) - tokens_in(pool_key, tokens_per_minute, now_ms)
  for _, other in ipairs(who_is_thirsty()) do
    if not thirst or other.since < thirst.since then missing = missing + other.needed end
  end
  if thirst and thirst.model ~= model then missing = missing + thirst.needed end
  return math.max(0, math.ceil(missing * MINUTE_MS / tokens_per_minute))
end

local function take_tokens(model, needed)
  change_tokens(pool_key, tokens_per_minute, now_ms, -needed)
  if thirst and thirst.model == model then thirst = nil end
end

-- A place in the line is kept until its tokens are granted.
local function wait_for_tokens(model, needed)
  local since = thirst and thirst.since or now_ms
  thirst = {since = since, needed = math.min(needed, burst), model = model}
  redis.call('ZADD', thirsty, string.format('%d', since), incarnation)
  redis.call('HSET', wants, incarnation .. '/tokens', string.format('%d', needed) .. ' ' .. model)
  redis.call('EXPIRE', thirsty, 3600)
  redis.call('EXPIRE', wants, 3600)
  listen_for_turn()
end

local function wait_for_no_tokens()
  thirst = nil
  if redis.call('ZREM', thirsty, incarnation) == 0 then return end
  redis.call('HDEL', wants, incarnation .. '/tokens')
end

-- Calls those whose tokens are there, before they come by themselves: more may have gone back than was to be expected.
local function call_who_is_thirsty()
  if not anyone_waits then return end
  local left, own = tokens_per_minute and tokens_in(pool_key, tokens_per_minute, now_ms) or math.huge, thirst
  for _, other in ipairs(who_is_thirsty()) do
    if own and own.since < other.since then left, own = left - own.needed, nil end
    left = left - other.needed
    if left < 0 then return end
    give_turn_to(other)
  end
end
