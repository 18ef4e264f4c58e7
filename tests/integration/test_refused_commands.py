"""A user who lacks the right to one command: a script that is refused half way loses no job and settles none twice."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from tests.committer_contract import KEYS, RUN, claim, jobs, settle, words
from tests.integration.bench import RedisBench

SETTLING = ("hget", "hexists", "exists", "hset", "xadd", "expire", "set", "del", "hdel", "hlen", "srem")
CLAIMING = ("hget", "get", "set", "del", "zrangebyscore", "lindex", "lrange", "exists", "hset", "rpop", "llen", "sadd")


@contextmanager
def refused(client: redis.Redis, command: str) -> Iterator[None]:
    """Take the right to a command from everyone."""
    set_rights = client.execute_command  # redis-py's own method would ask for all of a user's rights.
    set_rights("ACL", "SETUSER", "default", f"-{command}")  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
    try:
        yield
    finally:
        set_rights("ACL", "SETUSER", "default", "+@all")  # type: ignore[no-untyped-call]  # as above


@pytest.mark.parametrize("command", SETTLING)
def test_a_settlement_that_is_refused_half_way_is_made_once(bench: RedisBench, command: str) -> None:
    """Asked again, it ends what it had begun: one entry, its result, its marker, and no claim."""
    bench.push(*jobs("a"))
    one = settle(claim(bench).claims[0])
    with refused(bench.client, command), suppress(ResponseError):
        words(bench, one)
    assert words(bench, one) == (1,)
    assert bench.client.xlen(KEYS.settlements) == 1
    assert bench.client.get(KEYS.result("a")) is not None
    assert bench.client.hget(KEYS.settled("a"), "status") == b"succeeded"
    assert bench.client.ttl(KEYS.settled("a")) > 0
    assert not bench.client.exists(KEYS.claims(RUN))


@pytest.mark.leaves("claims:*", "pool:*")
@pytest.mark.parametrize("command", CLAIMING)
def test_a_claim_that_is_refused_half_way_loses_no_job(bench: RedisBench, command: str) -> None:
    """Each is still in its queue, or in the claims."""
    pushed = jobs("a", "b")
    bench.push(*pushed)
    with refused(bench.client, command), suppress(ResponseError):
        claim(bench, number=1)
    queued = bench.client.lrange(KEYS.jobs("acme/model-1"), 0, -1)
    records: list[Any] = bench.client.hvals(KEYS.claims(RUN))
    claimed = [record.split(b"\n", 4)[4] for record in records]
    assert set(queued) | set(claimed) == set(pushed)
