-- Included: reads of keys of single jobs.
--
-- Where client-side caching is on, the server remembers each key that a connection reads, until that key changes: for a job's own
-- keys that is for ever, and there is no end of them. SORT that is told not to sort gives the same and is not remembered, since
-- it is a command that might write.

local function items_of(list)
  return redis.call('SORT', list, 'BY', 'nosort')
end

-- A key of any kind: SORT refuses a text.
local function is_there(key)
  local reply = redis.pcall('SORT', key, 'BY', 'nosort')
  if not reply.err then return #reply > 0 end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then return true end
  error(reply)
end
