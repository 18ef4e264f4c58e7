-- Moves a dead letter's bytes to the back of a queue.
--
-- KEYS  1 dead letters (stream)
--       2 queue (list)
-- ARGV  1 id of the dead letter
-- Returns 1 if it was moved, 0 if it is not there.
--
-- Repeating is safe: the dead letter is deleted in the step that pushes it, so the second call finds none.
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if #found == 0 then
  return 0
end
local fields = found[1][2]
for i = 1, #fields, 2 do
  if fields[i] == 'raw' then
    redis.call('LPUSH', KEYS[2], fields[i + 1])
    redis.call('XDEL', KEYS[1], ARGV[1])
    return 1
  end
end
return redis.error_reply('ERR the dead letter has no field raw')
