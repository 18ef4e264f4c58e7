-- Included: the record of a claim, and what a claim gives back when it ends. Expects the local prefix.
--
-- A record is lines of text before the raw bytes: list, job_id, claim time, what the claim holds.
-- What it holds is '' or words: pool, public model, reserved tokens, bytes of the prompt, circuit whose probe it is or '-',
-- circuit beside which no other suspect runs or '-'.

-- include bucket

local function as_record(list, job_id, claimed_ms, holds, raw)
  return list .. '\n' .. job_id .. '\n' .. claimed_ms .. '\n' .. holds .. '\n' .. raw
end

-- list, job_id, claimed_ms, holds, raw
local function parts_of(record)
  return string.match(record, '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n(.*)$')
end

local function holdings(holds)
  return string.match(holds, '^(%S+) (%S+) (%d+) (%d+) (%S+) (%S+)$')
end

-- An estimate follows the truth slowly enough that one strange prompt does not throw it off.
local function learn_tokens_per_byte(pool_key, model, prompt_tokens, prompt_bytes)
  local before = tonumber(redis.call('HGET', pool_key, 'per_byte:' .. model))
  local now = prompt_tokens / prompt_bytes
  redis.call('HSET', pool_key, 'per_byte:' .. model, before and before * 0.8 + now * 0.2 or now)
end

-- A slot is model and claim, and how many each model has is counted beside them. Returns whether there was one.
local function give_slot_back(pool_key, slot)
  if redis.call('ZREM', pool_key .. ':slots', slot) == 0 then return false end
  local model = string.match(slot, '^([^\n]*)\n')
  if redis.call('HINCRBY', pool_key .. ':used', model, -1) <= 0 then redis.call('HDEL', pool_key .. ':used', model) end
  return true
end

-- What a claim holds goes back. how says what became of its inference:
-- 'unstarted': it never ran, and costs nothing; 'over': it has ended, and spent what it spent;
-- 'on': the runtime may still be busy with it, so the slot stays taken until it lapses.
-- Each step may be repeated or find nothing left: slots and grants go by the claim's name.
local function let_go(claim, holds, how, spent, prompt_tokens)
  local pool, model, reserved, prompt_bytes, probed, beside_none = holdings(holds)
  if not pool then return end
  local key = prefix .. 'pool:' .. pool
  if how ~= 'on' then give_slot_back(key, model .. '\n' .. claim) end
  if how == 'unstarted' then redis.call('ZREM', key .. ':grants', claim) end
  if probed ~= '-' then redis.call('ZREM', prefix .. 'probes:' .. probed, claim) end
  if beside_none ~= '-' and redis.call('GET', prefix .. 'alone:' .. beside_none) == claim then
    redis.call('DEL', prefix .. 'alone:' .. beside_none)
  end
  local per_minute = reserved ~= '0' and tonumber(redis.call('HGET', key, 'tokens_per_minute') or nil)
  if per_minute then
    local time = redis.call('TIME')
    change_tokens(key, per_minute, time[1] * 1000 + math.floor(time[2] / 1000), reserved - (spent or 0))
    prompt_tokens, prompt_bytes = tonumber(prompt_tokens or 0), tonumber(prompt_bytes)
    if prompt_tokens > 0 and prompt_bytes > 0 then
      learn_tokens_per_byte(key, model, prompt_tokens, prompt_bytes)
    end
  end
end
