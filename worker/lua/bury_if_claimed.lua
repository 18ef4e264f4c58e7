-- Moves claimed bytes that cannot become a job to the dead letters, as they came.
--
-- KEYS[1] claims of this incarnation   KEYS[2] the dead letters
-- ARGV[1] worker_id                    ARGV[2] the time, RFC 3339
-- ARGV[3..] for each: tag, reason
--
-- Returns for each: 1 it is buried, 0 the claim is gone. A repeat finds no claim and changes nothing.

local replies = {}
for i = 3, #ARGV, 2 do
  local record = redis.call('HGET', KEYS[1], ARGV[i])
  if record then
    local queue_end = string.find(record, '\n', 1, true)
    redis.call('XADD', KEYS[2], '*', 'queue', string.sub(record, 1, queue_end - 1), 'reason', ARGV[i + 1],
      'raw', string.sub(record, queue_end + 1), 'worker_id', ARGV[1], 'at', ARGV[2])
    redis.call('HDEL', KEYS[1], ARGV[i])
  end
  replies[#replies + 1] = record and 1 or 0
end
return replies
