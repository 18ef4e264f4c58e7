-- Moves jobs out of their queues and into the claims of one run of a worker, in one step.
--
-- KEYS[1]   claims of this incarnation (hash: tag -> record)
-- KEYS[2]   jobs that wait for a retry (sorted set: record by due time)
-- KEYS[3]   number of the last call (string)
-- KEYS[4..] the lists to take from: each model's lists follow one another in the order they are read
--
-- ARGV[1] prefix of all keys            ARGV[2] number of this call; tags are <number>.<n>
-- ARGV[3] how many jobs are wanted      ARGV[4] max_job_bytes: larger ones are claimed unread
-- ARGV[5] max_queue_ms, -1 for off      ARGV[6] lists per model
-- ARGV[7] how many of the models are open; of the others, and once enough is taken, only expired heads are claimed
-- ARGV[8] how many expired heads may be taken at the most   ARGV[9] number of this sending, higher than of all before
--
-- Returns {now_ms, next_due_ms or -1, {models found empty, as indexes from 1}, {queues that got a retry back}, {claim...}}
-- with claim = {tag, list, raw, job_id or '', 1 if expired, attempts as JSON...}.
--
-- A repeat after a lost reply is safe: whoever lost it has settled none of its claims, so the first tag of the call is
-- still there, and the same claims are returned again. A sending that arrives after a later one, of the same call or
-- another, over a connection that was given up long ago, claims nothing: nobody would run it.

local claims, waiting, latest = KEYS[1], KEYS[2], KEYS[3]
local prefix, call = ARGV[1], ARGV[2]
local wanted, max_bytes, max_queue_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lists_per_model, open_models, most_expired = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local models = (#KEYS - 3) / lists_per_model
local RETRIES_A_CALL = 200

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Unix milliseconds of an RFC 3339 time, nil for anything else: tasks/rfc3339.py judges what is valid.
local function unix_ms(text)
  if type(text) ~= 'string' then return nil end
  local year, month, day, hour, minute, second, rest =
    string.match(text, '^(%d%d%d%d)%-(%d%d)%-(%d%d)[Tt](%d%d):(%d%d):(%d%d)(.*)$')
  if not year then return nil end
  local fraction, zone = string.match(rest, '^%.(%d+)(.+)$')
  if not fraction then fraction, zone = '', rest end
  local offset = 0
  if zone ~= 'Z' and zone ~= 'z' then
    local sign, hours, minutes = string.match(zone, '^([+-])(%d%d):(%d%d)$')
    if not sign then return nil end
    offset = (hours * 60 + minutes) * (sign == '-' and -1 or 1)
  end
  year, month = tonumber(year), tonumber(month)
  -- Days from 1970-01-01, with the year counted from March so that a leap day comes last.
  if month <= 2 then year, month = year - 1, month + 12 end
  local days = 365 * year + math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
    + math.floor((153 * (month - 3) + 2) / 5) + day - 1 - 719468
  local minutes_of_day = hour * 60 + minute - offset
  return ((days * 1440 + minutes_of_day) * 60 + second) * 1000 + tonumber(string.sub(fraction .. '000', 1, 3))
end

-- job_id and expiry of a bare job; '' for what is none, such as a Celery message, which the worker reads itself.
local function read(raw)
  if #raw > max_bytes then return '', 0 end
  local ok, job = pcall(cjson.decode, raw)
  if not ok or type(job) ~= 'table' then return '', 0 end
  local job_id = job.job_id
  if type(job_id) ~= 'string' or #job_id > 128 or not string.match(job_id, '^[%w._:-]+$') then return '', 0 end
  local expires_ms, enqueued_ms = unix_ms(job.expires_at), unix_ms(job.enqueued_at)
  if expires_ms and now_ms > expires_ms then return job_id, 1 end
  if max_queue_ms >= 0 and enqueued_ms and now_ms - enqueued_ms > max_queue_ms then return job_id, 1 end
  return job_id, 0
end

local function described(tag, list, raw, job_id, expired)
  local claim = {tag, list, raw, job_id, expired}
  if job_id ~= '' then
    for _, attempt in ipairs(redis.call('LRANGE', prefix .. 'attempts:' .. job_id, 0, -1)) do
      claim[#claim + 1] = attempt
    end
  end
  return claim
end

local function next_due()
  local first = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
  return first[2] and math.floor(tonumber(first[2])) or -1
end

-- A record is lines of text before the raw bytes: '<queue>' in a claim, '<claim it came from>', '<queue>' in a retry.
local function return_due_retries()
  local returned = {}
  for _, record in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', now_ms, 'LIMIT', 0, RETRIES_A_CALL)) do
    local id_end = string.find(record, '\n', 1, true)
    local queue_end = string.find(record, '\n', id_end + 1, true)
    local queue = string.sub(record, id_end + 1, queue_end - 1)
    redis.call('RPUSH', queue, string.sub(record, queue_end + 1))
    redis.call('ZREM', waiting, record)
    returned[#returned + 1] = queue
  end
  return returned
end

local function claims_of_an_earlier_try()
  local found, n = {}, 1
  while true do
    local tag = call .. '.' .. n
    local record = redis.call('HGET', claims, tag)
    if not record then return found end
    local queue_end = string.find(record, '\n', 1, true)
    local raw = string.sub(record, queue_end + 1)
    found[n] = described(tag, string.sub(record, 1, queue_end - 1), raw, read(raw))
    n = n + 1
  end
end

local found = claims_of_an_earlier_try()
if #found > 0 then return {now_ms, next_due(), {}, {}, found} end

-- Kept apart from the claims, which are empty when nothing runs; an hour is far beyond what a network holds back.
local latest_call, latest_sending = string.match(redis.call('GET', latest) or '0 0', '^(%d+) (%d+)$')
latest_call, latest_sending = tonumber(latest_call), tonumber(latest_sending)
if latest_call > tonumber(call) or (latest_call == tonumber(call) and latest_sending > tonumber(ARGV[9])) then
  return {now_ms, next_due(), {}, {}, {}}
end
redis.call('DEL', latest) -- A full server lets a script that has begun to write go on, and moving a job makes nothing larger.
redis.call('SET', latest, call .. ' ' .. ARGV[9], 'EX', 3600)

local returned = return_due_retries()

local function take(list, raw, job_id, expired)
  local tag = call .. '.' .. (#found + 1)
  redis.call('HSET', claims, tag, list .. '\n' .. raw)
  found[#found + 1] = described(tag, list, raw, job_id, expired)
end

local function list_of(model, n)
  return KEYS[3 + (model - 1) * lists_per_model + n]
end

local function take_one(model)
  for n = 1, lists_per_model do
    local raw = redis.call('RPOP', list_of(model, n))
    if raw then
      take(list_of(model, n), raw, read(raw))
      return true
    end
  end
  return false
end

-- Asking for the length of an empty list also makes the server tell this connection when something is pushed there
-- (client-side caching): asked in the script that found it empty, no push can fall between.
local function is_empty(model)
  local length = 0
  for n = 1, lists_per_model do length = length + redis.call('LLEN', list_of(model, n)) end
  return length == 0
end

local function take_expired_heads(model)
  for n = 1, lists_per_model do
    while most_expired > 0 do
      local raw = redis.call('LINDEX', list_of(model, n), -1)
      if not raw then break end
      local job_id, expired = read(raw)
      if expired == 0 then return end
      redis.call('RPOP', list_of(model, n))
      take(list_of(model, n), raw, job_id, expired)
      most_expired = most_expired - 1
    end
  end
end

local full = true
while #found < wanted and full do
  full = false
  for model = 1, open_models do
    if #found < wanted and take_one(model) then full = true end
  end
end

local empty = {}
for model = 1, models do
  if most_expired > 0 and (model > open_models or #found >= wanted) then take_expired_heads(model) end
  if is_empty(model) then empty[#empty + 1] = model end
end

return {now_ms, next_due(), empty, returned, found}
