-- Included: the tokens of a pool as a bucket that refills all the time, up to its brim.
--
-- What was used beyond a reservation makes it less than empty, and has to be refilled before more is granted; what was reserved and
-- not used goes back in full, also above the brim.

local BURST_SHARE = 1 / 6 -- Tokens of ten seconds may be taken at once: five minutes then stay within 5 % of the limit.

local function tokens_in(pool_hash, per_minute, now)
  local brim = per_minute * BURST_SHARE
  local state = redis.call('HMGET', pool_hash, 'tokens_level', 'tokens_at_ms')
  if not state[2] then return brim end
  local level = tonumber(state[1])
  if level >= brim then return level end
  return math.min(brim, level + (now - tonumber(state[2])) * per_minute / 60000)
end

-- What has refilled until now is written down with every change, so that it is not lost by what is put on top of it.
local function change_tokens(pool_hash, per_minute, now, by)
  redis.call('HSET', pool_hash, 'tokens_level', tokens_in(pool_hash, per_minute, now) + by,
    'tokens_at_ms', string.format('%d', now))
end
