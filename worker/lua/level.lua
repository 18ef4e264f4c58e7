-- Included: how the level of an adaptive pool begins, and ends. Expects the locals pool_hash (the pool's key) and now_ms.
--
-- A level holds for a minute after a worker last looked at it. So none is left behind by workers that are gone, or that have
-- stopped to adapt: where nobody goes on with it, it is of another time, and the next one begins anew.

local FIRST_LEVEL, LEVEL_LASTS_MS = 1, 60000
local LEVEL_FIELDS = {
  'level', 'level_reason', 'level_step', 'level_proven', 'level_ceiling', 'level_failed', 'level_retry_ms',
  'level_changed_ms', 'level_lowered_ms', 'level_slowness', 'level_vain', 'level_era', 'level_flight', 'level_version',
  'level_until_ms',
}

local function drop_level()
  redis.call('HDEL', pool_hash, unpack(LEVEL_FIELDS))
end

local function keep_level()
  local until_ms = tonumber(redis.call('HGET', pool_hash, 'level_until_ms'))
  if not until_ms or now_ms >= until_ms then
    drop_level()
    redis.call('HSET', pool_hash, 'level', FIRST_LEVEL)
  end
  redis.call('HSET', pool_hash, 'level_until_ms', string.format('%d', now_ms + LEVEL_LASTS_MS))
end
