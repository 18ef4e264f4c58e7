-- The settle script of benchmarks/stock_celery.py: the first one wins.
--
-- KEYS[1] marker   KEYS[2] settlement stream   KEYS[3] result
-- ARGV[1] job_id   ARGV[2] result as JSON      ARGV[3] the marker's and ARGV[4] the result's time to live, in seconds
if not redis.call('SET', KEYS[1], 'succeeded', 'NX', 'EX', ARGV[3]) then return 0 end
redis.call('XADD', KEYS[2], '*', 'job_id', ARGV[1], 'result', ARGV[2])
redis.call('SET', KEYS[3], ARGV[2], 'EX', ARGV[4])
return 1
