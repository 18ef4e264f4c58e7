-- Included: what a job_id says of a job that is to be claimed. Expects the locals prefix, incarnation and running,
-- and claims and unremembered included.

-- How a job stands with others of its id, and what it has to be compared with: a fingerprint, or bytes that are claimed elsewhere.
local function standing_among_others(tag, job_id)
  local settled_as = redis.call('HGET', prefix .. 'settled:' .. job_id, 'fingerprint')
  if settled_as then return 'settled', settled_as end
  local holder = redis.call('HGET', running, job_id)
  if holder and holder ~= incarnation .. '/' .. tag then
    local holder_incarnation, holder_tag = string.match(holder, '^(.*)/([^/]*)$')
    local record = redis.call('HGET', prefix .. 'claims:' .. holder_incarnation, holder_tag)
    if record then return 'held', select(5, parts_of(record)) end
  end
  return '', ''
end

-- Which job the attempts of a ledger are of, where one was tried again: its fingerprint, and the hash of the bytes it came with. To be
-- asked only where there are attempts. GETEX is a read that the server does not remember.
local function retried_as(job_id)
  return string.match(redis.call('GETEX', prefix .. 'retried:' .. job_id) or '', '^(%x*) (%x+)$')
end

local function is_cancelled(job_id)
  return is_there(prefix .. 'cancel:' .. job_id)
end
