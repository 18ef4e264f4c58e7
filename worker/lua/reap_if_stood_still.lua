-- Ends a dead run of a worker: its jobs go back to the front of their queues, with a lost attempt in their ledgers.
--
-- KEYS[1] leases   KEYS[2] claims of the dead incarnation   KEYS[3] incarnations that hold claims   KEYS[4] jobs that run
-- ARGV[1] prefix of all keys   ARGV[2] worker_id of the dead   ARGV[3] its incarnation
-- ARGV[4] the lease as it stood still, '' where the incarnation had none
-- ARGV[5] how long a ledger is kept, in seconds
--
-- Returns how many jobs went back, -1 if the lease has moved since: it is alive, or another worker was first. A repeat
-- finds the lease gone: of two calls, one gets the number.

local leases, claims, claimants, running = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, worker_id, incarnation, stood, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local lease = redis.call('HGET', leases, worker_id)
if stood ~= '' then
  if lease ~= stood then return -1 end
  redis.call('HDEL', leases, worker_id)
elseif lease and string.match(lease, '^(%S+) ') == incarnation then
  return -1
elseif redis.call('EXISTS', claims) == 0 then
  redis.call('SREM', claimants, incarnation)
  return -1
end

-- RFC 3339 of unix milliseconds: tasks/rfc3339.py writes the same.
local function rfc3339(unix_ms)
  local seconds = math.floor(unix_ms / 1000)
  local days, of_day = math.floor(seconds / 86400), seconds % 86400
  local shifted = days + 719468
  local era = math.floor(shifted / 146097)
  local day_of_era = shifted - era * 146097
  local year_of_era = math.floor((day_of_era - math.floor(day_of_era / 1460) + math.floor(day_of_era / 36524)
    - math.floor(day_of_era / 146096)) / 365)
  local day_of_year = day_of_era - (365 * year_of_era + math.floor(year_of_era / 4) - math.floor(year_of_era / 100))
  local month = math.floor((5 * day_of_year + 2) / 153)
  local day = day_of_year - math.floor((153 * month + 2) / 5) + 1
  month = month < 10 and month + 3 or month - 9
  local year = year_of_era + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%03dZ', year, month, day, math.floor(of_day / 3600),
    math.floor(of_day / 60) % 60, of_day % 60, unix_ms % 1000)
end

local function place(tag)
  local call, n = string.match(tag, '^(%d+)%.(%d+)$')
  return tonumber(call), tonumber(n)
end

-- include claims

-- The last one returned is next in line: the one that was claimed first must be returned last.
local tags = redis.call('HKEYS', claims)
table.sort(tags, function(a, b)
  local a_call, a_n = place(a)
  local b_call, b_n = place(b)
  if a_call ~= b_call then return a_call > b_call end
  return a_n > b_n
end)

for _, tag in ipairs(tags) do
  local list, job_id, claimed_ms, holds, raw = parts_of(redis.call('HGET', claims, tag))
  redis.call('RPUSH', list, raw)
  local is_second = job_id ~= '' and redis.call('HGET', running, job_id) ~= incarnation .. '/' .. tag
  if not is_second then
    local attempts = prefix .. 'attempts:' .. (job_id ~= '' and job_id or '#' .. redis.sha1hex(raw))
    redis.call('RPUSH', attempts, '{"worker_id":"' .. worker_id .. '","started_at":"' .. rfc3339(tonumber(claimed_ms))
      .. '","code":"worker_lost","inference_ms":null,"usage":null}')
    redis.call('EXPIRE', attempts, ttl)
    if job_id ~= '' then redis.call('HDEL', running, job_id) end
  end
  -- What could be read was started as soon as it was claimed: the runtime may be busy with it still.
  let_go(incarnation .. '/' .. tag, holds, job_id == '' and 'unstarted' or 'on')
end
redis.call('DEL', claims)
redis.call('SREM', claimants, incarnation)
return #tags
