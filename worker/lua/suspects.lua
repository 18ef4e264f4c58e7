-- Included: jobs that were there when a process died. Expects the locals prefix, incarnation, waiting and now_ms.

-- A crash is a run that ended with its worker's process or its model's. The texts are ours: no customer's word is in a ledger.
local function crashes(attempts)
  local count = 0
  for _, attempt in ipairs(attempts) do
    if string.find(attempt, '"code":"worker_lost"', 1, true)
      or string.find(attempt, '"code":"runtime_model_crashed"', 1, true) then count = count + 1 end
  end
  return count
end

-- One whose model's process died under it runs beside no other such, over all workers: the process that dies is everyone's.
local function has_crashed_its_model(attempts)
  for _, attempt in ipairs(attempts) do
    if string.find(attempt, '"code":"runtime_model_crashed"', 1, true) then return true end
  end
  return false
end

-- Whether another such job runs at a circuit; the mark of one whose claim is gone is worth nothing.
local function another_is_alone(circuit)
  local claim = redis.call('GET', prefix .. 'alone:' .. circuit)
  if not claim then return false end
  local holder, tag = string.match(claim, '^(.*)/([^/]*)$')
  return redis.call('HEXISTS', prefix .. 'claims:' .. holder, tag) == 1
end

-- Puts a job that is to run alone among those that wait, while another runs. Under a name of its own: an equal one may have been
-- set aside before.
local ASIDE_MS = 1000
local function set_aside(name, list, raw)
  local n = 0
  repeat
    n = n + 1
    local record = incarnation .. '/' .. name .. '.' .. n .. '\n' .. list .. '\n' .. raw
  until redis.call('ZADD', waiting, 'NX', now_ms + ASIDE_MS, record) == 1
end
