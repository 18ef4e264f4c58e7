-- Looks at lists without taking anything: how long each is, and what is next in line.
--
-- KEYS the lists   ARGV[1] the longest element that is returned whole, in bytes
--
-- Returns for each list {length, element next in line or '' where it is longer or there is none, a mark that tells one element
-- from another or '' where there is none}. What is no list has length 0.

local found = {}
for i, list in ipairs(KEYS) do
  local head = redis.pcall('LINDEX', list, -1)
  if type(head) == 'string' then
    local mark = redis.sha1hex(#head .. string.sub(head, 1, 1024))
    found[i] = {redis.call('LLEN', list), #head <= tonumber(ARGV[1]) and head or '', mark}
  else
    found[i] = {0, '', ''}
  end
end
return found
