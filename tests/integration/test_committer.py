"""Exchanges are carried out through every outage, once, and the doorbell is tied to whichever connection claims."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import redis
from structlog.testing import capture_logs

from tests.committer_contract import AN_HOUR_MS, KEYS, RUN, jobs, retry, settle
from tests.conservation import assert_conserved, whereabouts
from tests.integration.bench import enter, ledger_on, never_ring
from tests.integration.lossy_proxy import LossyProxy
from tests.jobs import MODEL
from tests.waiting import wait_until
from worker.clock import MonotonicClock, RedisClock
from worker.committer import Committer
from worker.doorbell import Doorbell
from worker.exchange import Bury, Claim, ClaimRequest, Exchange, Return
from worker.redis_link import RedisLink
from worker.sandbox.valkey_server import ValkeyServer


@dataclass
class Rig:
    """A committer whose waits and news are written down."""

    url: str
    on_wait: Callable[[], None] = lambda: None
    socket_timeout: float = 5.0
    waits: list[float] = field(default_factory=list)
    news: int = 0

    def __post_init__(self) -> None:
        self.link = RedisLink(self.url, socket_timeout=self.socket_timeout)
        self.doorbell = Doorbell(RedisLink(self.url), KEYS, never_ring)
        clock = RedisClock(MonotonicClock())
        self.committer = Committer(
            self.link, ledger_on(self.link), self.doorbell, clock, self._wait, on_connected=self._connected
        )

    def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.on_wait()

    def _connected(self) -> None:
        self.news += 1

    def claim(self, number: int = 1, wanted: int = 100) -> tuple[Claim, ...]:
        """Claim from the queue of MODEL."""
        claimed = self.committer.exchange(Exchange(claim=ClaimRequest(number, wanted, (MODEL,)))).claimed
        assert claimed is not None
        return claimed.claims


@pytest.mark.leaves("claims:*", "waiting")
@pytest.mark.parametrize("lost", [1, 2, 5])
def test_after_lost_replies_everything_was_done_once(valkey: redis.Redis, redis_url: str, lost: int) -> None:
    """The same call is asked again until there is an answer, which is that of the first."""
    pushed = jobs(*(f"j-{n}" for n in range(8)))
    valkey.lpush(KEYS.jobs(MODEL), *pushed)
    enter(valkey)
    with LossyProxy(redis_url) as proxy:
        rig = Rig(proxy.url)
        rig.committer.exchange(Exchange())
        rig.claim(1, 0)
        proxy.lose = lost
        a, b, c, d = rig.claim(2, 4)
        assert proxy.lost == lost
        proxy.lose = lost
        commits = (settle(a), retry(b, AN_HOUR_MS), Return(c.tag), Bury(d.tag, "not_json"))
        reply = rig.committer.exchange(Exchange(commits, claim=ClaimRequest(3, 2, (MODEL,))))
        assert proxy.lost == 2 * lost
        assert reply.outcomes[0] == 1
        assert reply.claimed is not None
        assert [one.job_id for one in reply.claimed.claims] == ["j-2", "j-4"]
        rig.link.close()
    now = whereabouts(valkey, KEYS)
    assert_conserved(now, pushed)
    assert (now.claimed.total(), now.waiting.total(), now.dead.total(), now.settled.total()) == (2, 1, 1, 1)
    assert valkey.llen(KEYS.attempts("j-1")) == 1


def test_a_killed_server_is_waited_for(durable_valkey: ValkeyServer) -> None:
    """What it had confirmed is there, and what was asked is done when it is back."""
    with redis.Redis.from_url(durable_valkey.url) as client:
        client.lpush(KEYS.jobs(MODEL), *jobs("a", "b"))
        enter(client)
        rig = Rig(durable_valkey.url)
        a, _ = rig.claim()
        durable_valkey.kill()
        rig.on_wait = lambda: durable_valkey.restart() if len(rig.waits) == 3 else None
        with capture_logs() as lines:
            reply = rig.committer.exchange(Exchange((settle(a),)))
        assert reply.outcomes == (1,)
        assert len(rig.waits) == 3
        told = [line["event"] for line in lines]  # Cut off at first, and then refused: what is wrong may be told anew.
        assert (set(told[:-1]), told[-1]) == ({"redis.became_unavailable"}, "redis.became_available")
        now = whereabouts(client, KEYS)
        assert (now.settled.total(), now.claimed.total()) == (1, 1)
        rig.link.close()


def test_a_frozen_server_is_waited_for(durable_valkey: ValkeyServer) -> None:
    """It does at last what it was asked meanwhile, and no more."""
    with redis.Redis.from_url(durable_valkey.url) as client:
        client.lpush(KEYS.jobs(MODEL), *jobs("a", "b", "c"))
        enter(client)
        rig = Rig(durable_valkey.url, socket_timeout=0.3)
        rig.claim(1, 0)
        durable_valkey.freeze()
        rig.waits.clear()  # A busy machine may have made it wait before.
        rig.on_wait = lambda: durable_valkey.thaw() if len(rig.waits) == 2 else None
        assert [one.job_id for one in rig.claim(2, 2)] == ["a", "b"]
        assert client.hlen(KEYS.claims(RUN)) == 2
        assert client.llen(KEYS.jobs(MODEL)) == 1
        rig.link.close()


def test_waits_grow_to_half_a_second() -> None:
    """From 50 ms: a restart is met at once, an outage is not hammered."""

    class TakenUp(Exception):
        """Enough was seen."""

    def until_eight() -> None:
        if len(rig.waits) == 8:
            raise TakenUp

    rig = Rig("redis://127.0.0.1:1/0", on_wait=until_eight)
    with pytest.raises(TakenUp):
        rig.claim()
    assert rig.waits == [0.05, 0.1, 0.2, 0.4, 0.5, 0.5, 0.5, 0.5]
    assert not rig.committer.reachable


def test_news_is_given_when_pushes_may_have_been_missed(valkey: redis.Redis, redis_url: str) -> None:
    """At the first answer, and at the first after each break."""
    rig = Rig(redis_url)
    rig.claim(1)
    assert rig.news == 1
    rig.claim(2)
    assert rig.news == 1
    valkey.client_kill_filter(skipme=True, _type="normal")
    rig.claim(3)
    assert rig.news == 2
    assert rig.committer.reachable
    rig.link.close()


def test_a_connection_that_is_cut_while_nothing_is_asked_is_news_too(valkey: redis.Redis, redis_url: str) -> None:
    """The server tells of no pushes any more, and the next sweep may be seconds away."""
    rig = Rig(redis_url)
    rig.claim(1)
    rig.committer.look_at_connection()
    assert rig.news == 1
    valkey.client_kill_filter(skipme=True, _type="normal")

    def is_news() -> bool:
        rig.committer.look_at_connection()
        return rig.news == 2

    wait_until(is_news, description="the cut is noticed")
    assert not rig.committer.is_told_of_pushes()
    rig.committer.look_at_connection()
    assert rig.news == 2
    assert rig.claim(2) == ()
    assert rig.committer.reachable
    rig.link.close()


def test_a_refused_command_is_said_and_waited_out(valkey: redis.Redis, redis_url: str) -> None:
    """What is in hand is kept until somebody has mended it; the worker that ended would run it again."""
    valkey.set(KEYS.waiting, "no sorted set", ex=60)
    enter(valkey)

    def mend() -> None:
        valkey.delete(KEYS.waiting)

    rig = Rig(redis_url, on_wait=mend)
    rig.committer.reachable = True
    with capture_logs() as lines:
        assert rig.claim() == ()
    assert [line["event"] for line in lines] == ["redis.became_unavailable", "redis.became_available"]
    assert lines[0]["reason"].startswith("WRONGTYPE")
    assert len(rig.waits) == 1
    rig.link.close()


def test_without_a_doorbell_it_is_told_of_nothing(redis_url: str) -> None:
    """So queues are swept often."""
    rig = Rig(redis_url)
    rig.claim()
    assert not rig.committer.is_told_of_pushes()
    rig.link.close()
