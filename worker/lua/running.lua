-- Included: which claim runs a job. Expects the locals incarnation and running.

-- A claim that ends takes away only its own mark: another may run the job by now.
local function stop_running(tag, job_id)
  if redis.call('HGET', running, job_id) == incarnation .. '/' .. tag then redis.call('HDEL', running, job_id) end
end
