"""How a worker begins: with its lease and Redis' time, before anything is written with either."""

from collections.abc import Callable
from typing import Final

import gevent
import structlog
from redis.exceptions import ResponseError

from worker.heartbeat import Heartbeat
from worker.lease_keeper import LeaseKeeper
from worker.pool import Pool
from worker.redis_faults import described
from worker.redis_link import RedisUnavailable

_LOOK_SECONDS: Final = 0.5

log = structlog.get_logger()


def enter(
    lease: LeaseKeeper, heartbeat: Heartbeat, pool: Pool, redis_address: str, goes_on: Callable[[], bool]
) -> None:
    """Take the lease, learn Redis' time and put the pool's limits in force, however long Redis is away, while ``goes_on`` says so.

    Raises:
        WorkerIdTaken: another live process runs under this worker_id.
    """
    told = False
    while goes_on():
        try:
            heartbeat.sync_clock()
            lease.enter()
            pool.enter()
        except (RedisUnavailable, ResponseError) as error:  # A refusal is an operator's to mend, as an outage is.
            if not told:
                log.warning("redis.was_awaited", address=redis_address, reason=_words(error))
            told = True
            gevent.sleep(_LOOK_SECONDS)
        else:
            return


def _words(error: RedisUnavailable | ResponseError) -> str:
    return str(error) if isinstance(error, RedisUnavailable) else described(error)
