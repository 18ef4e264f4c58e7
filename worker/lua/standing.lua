-- Included: what a job_id says of a job that is to be claimed. Expects the locals prefix, incarnation and running.

-- How a job stands with others of its id, and what it has to be compared with: a fingerprint, or bytes that are claimed elsewhere.
local function standing_among_others(tag, job_id)
  local settled_as = redis.call('HGET', prefix .. 'settled:' .. job_id, 'fingerprint')
  if settled_as then return 'settled', settled_as end
  local holder = redis.call('HGET', running, job_id)
  if holder and holder ~= incarnation .. '/' .. tag then
    local holder_incarnation, holder_tag = string.match(holder, '^(.*)/([^/]*)$')
    local record = redis.call('HGET', prefix .. 'claims:' .. holder_incarnation, holder_tag)
    if record then return 'held', string.match(record, '^[^\n]*\n[^\n]*\n[^\n]*\n(.*)$') end
  end
  return '', ''
end

local function is_cancelled(job_id)
  return redis.call('EXISTS', prefix .. 'cancel:' .. job_id) == 1
end

-- A crash is a run that ended with its worker's process or its model's. The texts are ours: no customer's word is in a ledger.
local function crashes(attempts)
  local count = 0
  for _, attempt in ipairs(attempts) do
    if string.find(attempt, '"code":"worker_lost"', 1, true)
      or string.find(attempt, '"code":"runtime_model_crashed"', 1, true) then count = count + 1 end
  end
  return count
end
