-- Moves jobs out of their queues and into the claims of one run of a worker, in one step, as far as their pool grants them.
--
-- KEYS[1] claims of this incarnation (hash: tag -> record)    KEYS[2] jobs that wait (sorted set: record by due time)
-- KEYS[3] leases (hash: worker_id -> 'incarnation counter lease_ms')
-- KEYS[4] incarnations that hold claims (set)                 KEYS[5] jobs that run (hash: job_id -> incarnation/tag)
-- KEYS[6] numbers of the last call (string)                   KEYS[7] models that an operator paused (set)
-- KEYS[8..] the lists to take from: each model's lists follow one another in the order they are read
--
-- ARGV[1] prefix of all keys            ARGV[2] number of this call; tags are <number>.<n>
-- ARGV[3] how many jobs are wanted      ARGV[4] max_job_bytes: larger ones are claimed unread
-- ARGV[5] max_queue_ms, -1 for off      ARGV[6] lists per model
-- ARGV[7] how many of the models are open; of the others, of those that are refused, and once enough is taken, only heads that
--         have ended are claimed, or that cannot be read here
-- ARGV[8] how many ended heads may be taken at the most
-- ARGV[9] worker_id                     ARGV[10] incarnation
-- ARGV[11] from how many crashes on a job runs alone among such   ARGV[12] 1 if one of those runs here now
-- ARGV[13] number of this sending, higher than of all before
-- ARGV[14] the pool, and what its limits are where it has none: ARGV[15] max_concurrency, ARGV[16] requests_per_minute or '',
-- ARGV[17] tokens_per_minute or '', ARGV[18] slots kept, JSON of public name to number
-- ARGV[19..] for each open model: its public name, how many of its jobs are wanted, its circuit, how long after its grant a slot
--         lapses at the latest (ms), how many probes may run at a time, 1 if a job of it is being opened
--
-- Returns {now_ms, next_due_ms or -1, {models found empty, as indexes from 1}, {queues that got a job back}, {claim...},
-- 1 if this incarnation holds its lease, else 0 and nothing was done, {lists that are none},
-- {{index of a model that was refused, the limit, when to ask again in ms or -1}...}}
-- with claim = {tag, list, raw, job_id or '', claimed_ms, what it holds, standing, rival, 1 if it is to run alone, attempts as JSON...};
-- standing is '' for a job to run, 'settled' (rival: the marker's fingerprint), 'held' (rival: the bytes it is claimed with
-- elsewhere), 'cancelled', 'expired' or 'exceeds'. Only what holds something may be run.
--
-- A job whose job_id has attempts of other bytes may be another job than was tried: only the worker is able to compare the two. It is
-- told without a job_id, as what cannot be read here, and is nobody's rival until it is opened.
--
-- A repeat after a lost reply is safe: whoever lost it has ended none of its claims, so the first tag of the call is
-- still there, and the same claims are returned again. A sending that arrives after a later one, of the same call or
-- another, over a connection that was given up long ago, claims nothing: nobody would run it.

local claims, waiting, leases, claimants, running, latest = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local paused = KEYS[7]
local FIRST_LIST, FIRST_TERMS, TERMS = 8, 19, 6
local prefix, call = ARGV[1], ARGV[2]
local wanted, max_bytes, max_queue_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local lists_per_model, open_models, most_ended = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local worker_id, incarnation = ARGV[9], ARGV[10]
local crashes_to_run_alone, one_runs_alone = tonumber(ARGV[11]), ARGV[12] == '1'
local pool = ARGV[14]
local models = (#KEYS - FIRST_LIST + 1) / lists_per_model
local RETRIES_A_CALL = 200
local PROBES_LOOK_MS = 250

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local lease = redis.call('HGET', leases, worker_id)
if not lease or string.match(lease, '^(%S+) ') ~= incarnation then return {now_ms, -1, {}, {}, {}, 0, {}, {}} end

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

-- job_id of a bare job, whether it has expired, and the job; '' for what is none, such as a Celery message, which the worker
-- reads.
local function read(raw)
  if #raw > max_bytes then return '', false end
  local ok, job = pcall(cjson.decode, raw)
  if not ok or type(job) ~= 'table' then return '', false end
  local job_id = job.job_id
  if type(job_id) ~= 'string' or #job_id > 128 or not string.match(job_id, '^[%w._:-]+$') then return '', false end
  local expires_ms, enqueued_ms = unix_ms(job.expires_at), unix_ms(job.enqueued_at)
  local expired = (expires_ms and now_ms > expires_ms)
    or (max_queue_ms >= 0 and enqueued_ms and now_ms - enqueued_ms > max_queue_ms)
  return job_id, expired and true or false, job
end

-- include claims
-- include unremembered
-- include standing
-- include suspects

local function ledger_of_bytes(raw)
  return items_of(prefix .. 'attempts:#' .. redis.sha1hex(raw))
end

-- How a job stands, what it has to be compared with, its ledger, and what it is known by until it is opened. What has no job_id has
-- its ledger under its bytes' hash.
local function standing_of(tag, raw, job_id, expired)
  if job_id == '' then return '', '', ledger_of_bytes(raw), '' end
  local attempts = items_of(prefix .. 'attempts:' .. job_id)
  local standing, rival = standing_among_others(tag, job_id)
  if standing == '' and #attempts > 0 then
    local _, tried = retried_as(job_id)
    if tried and tried ~= redis.sha1hex(raw) then return '', '', ledger_of_bytes(raw), '' end
  end
  if standing == '' then standing = is_cancelled(job_id) and 'cancelled' or expired and 'expired' or '' end
  return standing, rival, attempts, job_id
end

local function described(tag, list, raw, job_id, claimed_ms, holds, standing, rival, alone, attempts)
  local claim = {tag, list, raw, job_id, claimed_ms, holds, standing, rival, alone and 1 or 0}
  for _, attempt in ipairs(attempts) do claim[#claim + 1] = attempt end
  return claim
end

local function next_due()
  local first = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
  return first[2] and math.floor(tonumber(first[2])) or -1
end
local due_at_first = next_due()

-- Records of what waits are lines of text before the raw bytes: a unique name, and the list.
local function return_due_retries()
  local returned = {}
  if due_at_first < 0 or due_at_first > now_ms then return returned end
  for _, record in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', now_ms, 'LIMIT', 0, RETRIES_A_CALL)) do
    local list, raw = string.match(record, '^[^\n]*\n([^\n]*)\n(.*)$')
    redis.call('RPUSH', list, raw)
    redis.call('ZREM', waiting, record)
    returned[#returned + 1] = list
  end
  due_at_first = nil
  return returned
end

local function run_here(tag, job_id, standing)
  if job_id == '' or standing == 'settled' or standing == 'held' then return end
  redis.call('HSET', running, job_id, incarnation .. '/' .. tag)
end

local found = {}

-- One that was held elsewhere at the first try may be let go by now. It was granted nothing, so it is told to be held still: the
-- worker drops it, hears that there is no other, and returns it to its queue.
local function found_by_an_earlier_try()
  while true do
    local tag = call .. '.' .. (#found + 1)
    local record = redis.call('HGET', claims, tag)
    if not record then return #found > 0 end
    local list, known_by, claimed_ms, holds, raw = parts_of(record)
    local job_id, expired = read(raw)
    local standing, rival, attempts
    standing, rival, attempts, job_id = standing_of(tag, raw, known_by ~= '' and job_id or '', expired)
    local alone = crashes(attempts) >= crashes_to_run_alone
    if standing == '' and holds == '' and job_id ~= '' then
      standing, rival = 'held', raw
    else
      run_here(tag, job_id, standing)
    end
    found[#found + 1] = described(tag, list, raw, job_id, tonumber(claimed_ms), holds, standing, rival, alone, attempts)
  end
end

-- Kept apart from the claims, which are empty when nothing runs; an hour is far beyond what a network holds back.
-- GETEX counts as a write: a full server lets a script that has begun to write go on, and moving a job makes nothing larger.
local latest_call, latest_sending = string.match(redis.call('GETEX', latest, 'EX', 3600) or '0 0', '^(%d+) (%d+)$')
latest_call, latest_sending = tonumber(latest_call), tonumber(latest_sending)
if latest_call > tonumber(call) or (latest_call == tonumber(call) and latest_sending > tonumber(ARGV[13])) then
  return {now_ms, due_at_first, {}, {}, {}, 1, {}, {}}
end
redis.call('SET', latest, call .. ' ' .. ARGV[13], 'EX', 3600)

if found_by_an_earlier_try() then return {now_ms, due_at_first, {}, {}, found, 1, {}, {}} end

local returned = return_due_retries()

local function field(model, n)
  return ARGV[FIRST_TERMS - 1 + (model - 1) * TERMS + n]
end

local function list_of(model, n)
  return KEYS[FIRST_LIST - 1 + (model - 1) * lists_per_model + n]
end

if redis.call('HEXISTS', prefix .. 'pool:' .. pool, 'max_concurrency') == 0 then
  redis.call('HSET', prefix .. 'pool:' .. pool, 'max_concurrency', ARGV[15], 'requests_per_minute', ARGV[16],
    'tokens_per_minute', ARGV[17], 'kept_slots', ARGV[18], 'set_by', worker_id, 'set_at', now_ms)
  redis.call('EXPIRE', prefix .. 'pool:' .. pool, 86400)
end

-- include pool

if most_ended > 0 then
  redis.call('EXPIRE', pool_key, 86400)
  count_again()
end

-- A key of another type in a queue's place is somebody's mistake, and must not keep the other queues from being read.
local unusable = {}

local function on_list(command, list, ...)
  local reply = redis.pcall(command, list, ...)
  if type(reply) ~= 'table' then return reply end
  unusable[#unusable + 1] = list
  return nil
end

local refused, refusals = {}, {}
local function refuse(model, limit_met, again_ms)
  refused[model] = limit_met
  refusals[#refusals + 1] = {model, limit_met, again_ms}
end

-- Circuits and pauses are asked for here, so that they cannot change between the question and the claim, and so that the server
-- tells this connection when they do.
local pauses = {}
if open_models > 0 then
  local names = {}
  for model = 1, open_models do names[model] = field(model, 1) end
  pauses = redis.call('SMISMEMBER', paused, unpack(names))
end

local probes_left = {}
local function look_at_circuit(model)
  local circuit = field(model, 3)
  local state = redis.call('HGET', prefix .. 'circuit:' .. circuit, 'state')
  if state == 'open' then
    refuse(model, 'circuit', -1)
  elseif state == 'half_open' then
    redis.call('ZREMRANGEBYSCORE', prefix .. 'probes:' .. circuit, '-inf', now_ms)
    probes_left[circuit] = field(model, 5) - redis.call('ZCARD', prefix .. 'probes:' .. circuit)
  end
end

for model = 1, open_models do
  if pauses[model] == 1 then refuse(model, 'paused', -1) else look_at_circuit(model) end
end

local taken_of, granted_of, unread_of, thirsts = {}, {}, {}, {}

local function is_admitted(model)
  if refused[model] or (taken_of[model] or 0) >= tonumber(field(model, 2)) then return false end
  if (probes_left[field(model, 3)] or 1) <= 0 then
    refuse(model, 'probes', PROBES_LOOK_MS)
    return false
  end
  local limit_met = limit_in_the_way(field(model, 1))
  if limit_met then refuse(model, limit_met, ask_again_ms(limit_met)) end
  return not limit_met
end

-- Bytes of a job's prompt and its max_tokens, nil where they are not known.
local function size_of(model, job, raw)
  if not job then return remembered_head(field(model, 1), raw) end
  if type(job.prompt) ~= 'string' or type(job.max_tokens) ~= 'number' then return nil end
  return #job.prompt, math.max(0, job.max_tokens)
end

-- Tokens and what is kept of them, or nil where the job has to wait for them. What cannot be read has its tokens counted when it is
-- opened, one of a model at a time.
local function tokens_for(model, job, raw)
  if not tokens_per_minute then return 0, 0 end
  local prompt_bytes, max_tokens = size_of(model, job, raw)
  local needed = prompt_bytes and tokens_needed(field(model, 1), prompt_bytes, max_tokens)
  if not job and not (needed and needed <= tokens_per_minute) then
    if not unread_of[model] and field(model, 6) == '0' then return 0, 0 end
    refuse(model, 'opening', -1)
    return nil
  end
  if not needed then return 0, 0 end
  if needed > tokens_per_minute then return needed, prompt_bytes end
  local wait_ms = tokens_wait_ms(field(model, 1), needed)
  if wait_ms > 0 then
    refuse(model, 'tokens', wait_ms)
    thirsts[#thirsts + 1] = {model = field(model, 1), needed = needed}
    return nil
  end
  return needed, prompt_bytes
end

-- Takes from the pool what an inference needs; returns what the claim holds.
local function granted(model, claim, needed, prompt_bytes, alone_at)
  local lapse_ms = now_ms + field(model, 4)
  granted_of[model] = true
  grant(field(model, 1), claim, lapse_ms)
  if needed > 0 then take_tokens(field(model, 1), needed) end
  local probed = '-'
  if probes_left[field(model, 3)] then
    probed = field(model, 3)
    redis.call('ZADD', prefix .. 'probes:' .. probed, lapse_ms, claim)
    redis.call('PEXPIRE', prefix .. 'probes:' .. probed, field(model, 4))
    probes_left[probed] = probes_left[probed] - 1
  end
  if alone_at ~= '-' then redis.call('SET', prefix .. 'alone:' .. alone_at, claim, 'EX', 86400) end
  return table.concat({pool, field(model, 1), string.format('%d', needed), prompt_bytes, probed, alone_at}, ' ')
end

local function keep(tag, list, raw, job_id, holds, standing, rival, alone, attempts)
  redis.call('HSET', claims, tag, as_record(list, job_id, now_ms, holds, raw))
  run_here(tag, job_id, standing)
  found[#found + 1] = described(tag, list, raw, job_id, now_ms, holds, standing, rival, alone, attempts)
end

-- Decides about the head of a list: 'taken', 'aside' for one that waits for a moment while another of its like runs alone,
-- nil for one that stays where it is.
local function take(model, list, raw)
  local tag = call .. '.' .. (#found + 1)
  local claim = incarnation .. '/' .. tag
  local job_id, expired, job = read(raw)
  local standing, rival, attempts
  standing, rival, attempts, job_id = standing_of(tag, raw, job_id, expired)
  if job_id == '' then job = nil end
  local alone = crashes(attempts) >= crashes_to_run_alone
  local holds = ''
  if standing == '' then
    local alone_at = has_crashed_its_model(attempts) and alone and field(model, 3) or '-'
    if alone and (one_runs_alone or (alone_at ~= '-' and another_is_alone(alone_at))) then
      set_aside('aside/' .. tag, list, raw)
      due_at_first = nil
      return 'aside'
    end
    local needed, prompt_bytes = tokens_for(model, job, raw)
    if not needed then return nil end
    if tokens_per_minute and needed > tokens_per_minute then
      standing = 'exceeds'
    else
      holds = granted(model, claim, needed, prompt_bytes, alone_at)
      one_runs_alone = one_runs_alone or alone
      unread_of[model] = unread_of[model] or not job
    end
  end
  keep(tag, list, raw, job_id, holds, standing, rival, alone, attempts)
  return 'taken'
end

-- Lists that were read and held nothing, and models none of whose lists is there. Reading an empty list also makes the server tell
-- this connection when something is pushed there (client-side caching): read in the script that found it empty, no push can fall
-- between.
local read_empty, has_none = {}, {}

local function head_of_list(list)
  if read_empty[list] then return nil end
  local raw = on_list('LINDEX', list, -1)
  if not raw then read_empty[list] = true end
  return raw
end

-- Most models have jobs in the first of their lists, if any: the others are asked for in one go.
local function has_no_list(model)
  if has_none[model] == nil then
    local first = FIRST_LIST + (model - 1) * lists_per_model
    has_none[model] = redis.call('EXISTS', unpack(KEYS, first, first + lists_per_model - 1)) == 0
  end
  return has_none[model]
end

-- What is taken leaves its list last: where a server refuses one of the steps before, it is still there.
local function take_one(model)
  for n = 1, lists_per_model do
    local list = list_of(model, n)
    local raw = head_of_list(list)
    if not raw and has_no_list(model) then return false end
    while raw do
      if not is_admitted(model) then return false end
      local word = take(model, list, raw)
      if not word then return false end
      redis.call('RPOP', list)
      if word == 'taken' then
        taken_of[model] = (taken_of[model] or 0) + 1
        return true
      end
      raw = head_of_list(list)
    end
  end
  return false
end

local function is_empty(model)
  if has_none[model] then return true end
  local length = 0
  for n = 1, lists_per_model do
    local list = list_of(model, n)
    if not read_empty[list] then length = length + (on_list('LLEN', list) or 0) end
  end
  return length == 0
end

-- Nothing is granted for these: what has to be read by the worker first goes back if it has not ended.
local function take_ended_heads(model)
  for n = 1, lists_per_model do
    while most_ended > 0 do
      local list = list_of(model, n)
      local raw = on_list('LINDEX', list, -1)
      if not raw then break end
      local job_id, expired = read(raw)
      if job_id ~= '' and not expired and not is_cancelled(job_id) then return end
      local tag = call .. '.' .. (#found + 1)
      local standing, rival, attempts
      standing, rival, attempts, job_id = standing_of(tag, raw, job_id, expired)
      keep(tag, list, raw, job_id, '', standing, rival, crashes(attempts) >= crashes_to_run_alone, attempts)
      redis.call('RPOP', list)
      most_ended = most_ended - 1
      if job_id == '' then return end
    end
  end
end

local more = true
while #found < wanted and more do
  more = false
  for model = 1, open_models do
    if #found < wanted and take_one(model) then more = true end
  end
end

local empty = {}
local IN_LINE = {slots = true, requests = true, turn = true}
local waits, had_work = {}, {}
for model = 1, models do
  if most_ended > 0 and (model > open_models or refused[model] or #found >= wanted) then take_ended_heads(model) end
  if is_empty(model) then
    empty[#empty + 1] = model
  elseif refused[model] and IN_LINE[refused[model]] then
    waits[#waits + 1] = field(model, 1)
    had_work[#had_work + 1] = field(model, 1)
  end
  if granted_of[model] then had_work[#had_work + 1] = field(model, 1) end
end
if #had_work > 0 then are_active(had_work) end

-- Whether one of the model that waited for tokens is in this worker's hands, so that it may learn what that needs.
local function is_being_opened(name)
  for model = 1, open_models do
    if field(model, 1) == name and (unread_of[model] or field(model, 6) == '1') then return true end
  end
  return false
end

-- It waits for the tokens of one model at a time, of the same one as before while that still waits.
local function stand_in_line_for_tokens()
  local first = thirsts[1]
  for _, one in ipairs(thirsts) do
    if thirst and one.model == thirst.model then first = one end
  end
  if first then
    wait_for_tokens(first.model, first.needed)
  elseif open_models > 0 and not (thirst and is_being_opened(thirst.model)) then
    wait_for_no_tokens()
  end
end

if #waits > 0 then wait_in_line(waits) elseif open_models > 0 then leave_the_line() end
if tokens_per_minute then stand_in_line_for_tokens() end
call_who_waits()
if was_granted then keep_grants() end
if #found > 0 then redis.call('SADD', claimants, incarnation) end
return {now_ms, due_at_first or next_due(), empty, returned, found, 1, unusable, refusals}
