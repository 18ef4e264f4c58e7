-- Puts claimed jobs back to the front of the lists they came from, uncharged. The last one given is next in line.
--
-- KEYS[1] claims of this incarnation
-- ARGV    tags
--
-- Returns for each tag: 1 it is back, 0 the claim is gone. A repeat finds no claim and changes nothing.

local replies = {}
for _, tag in ipairs(ARGV) do
  local record = redis.call('HGET', KEYS[1], tag)
  if record then
    local queue_end = string.find(record, '\n', 1, true)
    redis.call('RPUSH', string.sub(record, 1, queue_end - 1), string.sub(record, queue_end + 1))
    redis.call('HDEL', KEYS[1], tag)
  end
  replies[#replies + 1] = record and 1 or 0
end
return replies
