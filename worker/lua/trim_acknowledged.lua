-- Drops the entries of a stream that every consumer group has acknowledged: those before the oldest entry that some group
-- still holds unacknowledged, or has yet to read.
--
-- KEYS  1 stream
-- ARGV  1 how many entries one call drops at most, about, so that no call holds up the server for long
-- Returns {entries dropped, 1 if there is nothing more to drop else 0, id of the oldest entry that must stay}, or nil when
--         the stream has no group: then nobody has acknowledged anything.
--
-- Repeating is safe: what has to stay is worked out anew by each call, in the step that drops.

-- Ids are pairs of 64-bit numbers, more than Lua's numbers hold exactly: compared as text, the longer one is the greater.
local function less(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

local function before(a, b)
  local a_ms, a_seq = a:match('^(%d+)-(%d+)$')
  local b_ms, b_seq = b:match('^(%d+)-(%d+)$')
  if a_ms == b_ms then
    return less(a_seq, b_seq)
  end
  return less(a_ms, b_ms)
end

local function after(id)
  local ms, seq = id:match('^(%d+)-(%d+)$')
  -- Beyond what a number holds exactly the entry itself is kept, which costs one entry and loses none.
  if #seq > 15 then
    return id
  end
  return ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
end

local function first_needed(group)
  local field = {}
  for i = 1, #group, 2 do
    field[group[i]] = group[i + 1]
  end
  local pending = redis.call('XPENDING', KEYS[1], field['name'])
  if pending[1] > 0 then
    return pending[2]
  end
  return after(field['last-delivered-id'])
end

if redis.call('EXISTS', KEYS[1]) == 0 then
  return {0, 1, '0-0'}
end
local oldest = nil
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local needed = first_needed(group)
  if not oldest or before(needed, oldest) then
    oldest = needed
  end
end
if not oldest then
  return nil
end
local dropped = redis.call('XTRIM', KEYS[1], 'MINID', '~', oldest, 'LIMIT', ARGV[1])
if dropped > 0 then
  return {dropped, 0, oldest}
end
-- Whole blocks are gone; what is left to drop is part of one block.
return {redis.call('XTRIM', KEYS[1], 'MINID', oldest), 1, oldest}
