-- Tells what the claim script would have told of a job, had it been able to read it, and writes its job_id into the claim:
-- for jobs in Celery messages, and those that may be others than were tried under their job_id. What they need of their pool's tokens
-- is granted here.
--
-- KEYS[1] claims of this incarnation   KEYS[2] jobs that run
-- KEYS[3] jobs that wait               KEYS[4] incarnations that hold claims
-- ARGV[1] prefix of all keys   ARGV[2] the incarnation   ARGV[3] max_queue_ms, -1 for off
-- ARGV[4] from how many crashes on a job runs alone among such
-- ARGV[5] 1 if one of those runs here now   ARGV[6] the pool
-- ARGV[7..] for each job: tag, job_id, fingerprint, expires_at as unix ms or '', enqueued_at as unix ms or '', bytes of its prompt,
--           its max_tokens or 0, its circuit
--
-- Returns for each job {1 if still claimed, 2 if it was set aside as in claim_from_queues, 3 if it went back to the front since it
-- has to wait for tokens, else 0, when to ask again in ms, what it holds, standing, rival, 1 if it is to run alone, attempts as
-- JSON...}, with standing and rival as in claim_from_queues, or standing 'preceded' (rival: a fingerprint) where another job was tried
-- under the job_id and has not ended. A repeat writes the same again, and finds no claim of what is gone.

local claims, running, waiting, claimants = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, incarnation, max_queue_ms, crashes_to_run_alone = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local one_runs_alone, pool = ARGV[5] == '1', ARGV[6]
local FIRST_JOB, WORDS = 7, 8
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- include claims
-- include running
-- include unremembered
-- include standing
-- include suspects
-- include pool

local function gone(word, again_ms)
  return {word, again_ms, '', '', '', 0}
end

-- A claim that leaves without having been run; what it holds goes back. An earlier try may have written down that it runs.
local function take_out(tag, job_id, holds)
  redis.call('HDEL', claims, tag)
  stop_running(tag, job_id)
  let_go(incarnation .. '/' .. tag, holds, 'unstarted')
end

-- What the claim holds from now on, or nil and when to ask again.
local function with_tokens(holds, model, raw, prompt_bytes, max_tokens)
  local _, _, reserved, _, probed, alone_at = holdings(holds)
  if not tokens_per_minute or max_tokens == 0 or reserved ~= '0' then return holds end
  local needed = tokens_needed(model, prompt_bytes, max_tokens)
  if needed > tokens_per_minute then return 'exceeds' end
  local wait_ms = tokens_wait_ms(model, needed)
  if wait_ms > 0 then
    wait_for_tokens(model, needed)
    remember_head(model, raw, prompt_bytes, max_tokens)
    return nil, wait_ms
  end
  take_tokens(model, needed)
  return table.concat({pool, model, string.format('%d', needed), string.format('%d', prompt_bytes), probed, alone_at}, ' ')
end

local function is_expired(expires_ms, enqueued_ms)
  return (expires_ms and now_ms > expires_ms)
    or (max_queue_ms >= 0 and enqueued_ms and now_ms - enqueued_ms > max_queue_ms)
end

-- Another one of its like runs, here or, where its model died under it, anywhere.
local function has_to_wait(claim, circuit, attempts)
  if one_runs_alone then return true end
  return has_crashed_its_model(attempts) and redis.call('GET', prefix .. 'alone:' .. circuit) ~= claim
    and another_is_alone(circuit)
end

local function runs_beside_none(claim, holds, circuit, attempts)
  if not has_crashed_its_model(attempts) then return holds end
  redis.call('SET', prefix .. 'alone:' .. circuit, claim, 'EX', 86400)
  return (string.gsub(holds, '%S+$', function() return circuit end))
end

local function opened(tag, job_id, fingerprint, expires_ms, enqueued_ms, prompt_bytes, max_tokens, circuit)
  local record = redis.call('HGET', claims, tag)
  if not record then return gone(0, -1) end
  local list, _, claimed_ms, holds, raw = parts_of(record)
  local claim = incarnation .. '/' .. tag
  local standing, rival = standing_among_others(tag, job_id)
  local attempts = items_of(prefix .. 'attempts:' .. job_id)
  local alone = crashes(attempts) >= crashes_to_run_alone
  local tried = standing == '' and #attempts > 0 and retried_as(job_id)
  if tried and tried ~= fingerprint then standing, rival = 'preceded', tried end
  if standing == '' then
    standing = is_cancelled(job_id) and 'cancelled' or is_expired(expires_ms, enqueued_ms) and 'expired' or ''
  end
  if standing == '' and holds ~= '' then
    if alone and has_to_wait(claim, circuit, attempts) then
      set_aside('opened/' .. tag, list, raw)
      take_out(tag, job_id, holds)
      return gone(2, -1)
    end
    local _, model = holdings(holds)
    local more, again_ms = with_tokens(holds, model, raw, prompt_bytes, max_tokens)
    if not more then
      redis.call('RPUSH', list, raw)
      take_out(tag, job_id, holds)
      return gone(3, again_ms)
    end
    if more == 'exceeds' then
      standing = 'exceeds'
    else
      holds = more
      if alone then holds = runs_beside_none(claim, holds, circuit, attempts) end
      one_runs_alone = one_runs_alone or alone
    end
  end
  if standing ~= '' then
    let_go(claim, holds, 'unstarted')
    holds = ''
  end
  redis.call('HSET', claims, tag, as_record(list, job_id, claimed_ms, holds, raw))
  if standing ~= 'settled' and standing ~= 'held' and standing ~= 'preceded' then redis.call('HSET', running, job_id, claim) end
  local reply = {1, -1, holds, standing, rival, alone and 1 or 0}
  for _, attempt in ipairs(attempts) do reply[#reply + 1] = attempt end
  return reply
end

local replies = {}
for i = FIRST_JOB, #ARGV, WORDS do
  replies[#replies + 1] = opened(ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]),
    tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6]), ARGV[i + 7])
end
if redis.call('HLEN', claims) == 0 then redis.call('SREM', claimants, incarnation) end
if tokens_per_minute then
  if not thirst then wait_for_no_tokens() end
  call_who_is_thirsty()
end
return replies
