"""A Redis that is full, a replica, loading, busy or cannot save: nothing is lost, and the worker asks again."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from tests.committer_contract import AN_HOUR_MS, KEYS, OTHER_MODEL, RUN, jobs, retry, settle
from tests.conservation import assert_conserved, whereabouts
from tests.integration.bench import NOW, Ledgers
from tests.integration.unhappy_servers import UNHAPPY, Unhappiness, full
from tests.jobs import MODEL
from tests.waiting import wait_until
from worker import lua
from worker.exchange import Bury, Claim, ClaimRequest, Exchange, Return
from worker.ledger import Ledger
from worker.redis_link import RedisUnavailable
from worker.sandbox.valkey_server import ValkeyServer


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    """A Valkey of these tests' own, to be made unhappy."""
    with ValkeyServer(settings={"enable-debug-command": "local"}) as server:
        yield server


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[redis.Redis]:
    """A client of it; it is empty."""
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        client.script_flush()
        yield client


def claimed(book: Ledger, number: int = 1) -> list[Claim]:
    """Claim everything."""
    reply = book.exchange(Exchange(claim=ClaimRequest(number, 100, (MODEL,))), NOW).claimed
    assert reply is not None
    return list(reply.claims)


def claimed_at_last(book: Ledger, number: int) -> list[Claim]:
    """Claim with little patience until there is an answer, as a worker does: a busy server may take longer."""

    def ask() -> list[Claim]:
        try:
            return claimed(book, number)
        except RedisUnavailable:
            return []

    return wait_until(ask, description="the server answers in time")


@pytest.mark.parametrize("unhappy", UNHAPPY, ids=lambda unhappy: unhappy.__name__)
def test_nothing_is_lost_and_asking_again_does_it(
    client: redis.Redis,
    server: ValkeyServer,
    ledgers: Ledgers,
    unhappy: Unhappiness,
) -> None:
    """Each commit leaves its claim, each claim its queue; the same call succeeds as soon as the server can again."""
    pushed = jobs("settled", "retried", "returned", "buried", "queued")
    client.lpush(KEYS.jobs(MODEL), *pushed)
    book = ledgers(server.url)
    a, b, c, d, _ = claimed(book)
    book.exchange(Exchange((Return("1.5"),)), NOW)
    asked = Exchange((settle(a), retry(b, AN_HOUR_MS), Return(c.tag), Bury(d.tag, "not_json")))
    asked_more = Exchange(claim=ClaimRequest(2, 100, (MODEL,)))
    with unhappy(client, server):
        with pytest.raises(RedisUnavailable):
            book.exchange(asked, NOW)
        # A full server still lets a job be moved into the claims, since nothing grows by it.
        with ExitStack() as refused:
            if unhappy is not full:
                refused.enter_context(pytest.raises(RedisUnavailable))
            book.exchange(asked_more, NOW)
    now = whereabouts(client, KEYS)
    assert_conserved(now, pushed)
    assert now.claimed.total() == (5 if unhappy is full else 4)
    assert book.exchange(asked, NOW).outcomes == (1, 1, 1, 1)
    reply = book.exchange(asked_more, NOW).claimed
    assert reply is not None
    assert len(reply.claims) == (1 if unhappy is full else 2)
    assert_conserved(whereabouts(client, KEYS), pushed)


def test_a_server_that_fills_up_within_a_call_finishes_it(
    client: redis.Redis, server: ValkeyServer, ledgers: Ledgers
) -> None:
    """Once a script has written, its further writes are let through: no job is settled by half."""
    client.lpush(KEYS.jobs(MODEL), *jobs(*(f"j-{n}" for n in range(20))))
    book = ledgers(server.url)
    commits = tuple(settle(one) for one in claimed(book))
    used = client.info("memory")["used_memory"]
    for spare in range(0, 60_000, 3_000):
        client.config_set("maxmemory", used + spare)
        try:
            words = book.exchange(Exchange(commits), NOW).outcomes
        except RedisUnavailable:
            assert client.xlen(KEYS.settlements) == len(list(client.scan_iter("speedinfer:result:*")))
            assert client.xlen(KEYS.settlements) + client.hlen(KEYS.claims(RUN)) == 20
        else:
            assert words == (1,) * 20
            break
    client.config_set("maxmemory", 0)
    assert book.exchange(Exchange(commits), NOW).outcomes == (1,) * 20
    assert client.xlen(KEYS.settlements) == 20


def test_scripts_that_the_server_has_forgotten_are_loaded_again(
    client: redis.Redis, server: ValkeyServer, ledgers: Ledgers
) -> None:
    """As after a restart; the caller notices nothing, and what was done before that is not done twice."""
    client.lpush(KEYS.jobs(MODEL), *jobs("a", "b", "c"))
    book = ledgers(server.url)
    a, b, c = claimed(book)
    client.script_flush()
    assert book.exchange(Exchange((settle(a),)), NOW).outcomes == (1,)
    client.script_flush()
    client.script_load(lua.load("settle_if_claimed"))
    reply = book.exchange(Exchange((settle(b), Return(c.tag)), claim=ClaimRequest(2, 9, (MODEL,))), NOW)
    assert reply.outcomes == (1, 1)
    assert reply.claimed is not None
    assert [one.job_id for one in reply.claimed.claims] == ["c"]
    assert client.xlen(KEYS.settlements) == 2


def test_a_key_of_another_type_holds_up_no_other_queue(
    client: redis.Redis, server: ValkeyServer, ledgers: Ledgers
) -> None:
    """The other models' jobs are claimed, and the key is named."""
    client.set(KEYS.jobs(MODEL), "no list")
    client.lpush(KEYS.jobs(OTHER_MODEL), *jobs("a"))
    reply = ledgers(server.url).exchange(Exchange(claim=ClaimRequest(1, 2, (MODEL, OTHER_MODEL))), NOW)
    assert reply.claimed is not None
    assert [one.job_id for one in reply.claimed.claims] == ["a"]
    assert reply.claimed.unusable == {KEYS.jobs(MODEL)}


def test_a_server_that_takes_no_more_clients_is_away(
    client: redis.Redis, server: ValkeyServer, ledgers: Ledgers
) -> None:
    """Until it does."""
    book = ledgers(server.url)
    client.config_set("maxclients", 1)
    try:
        with pytest.raises(RedisUnavailable):
            claimed(book)
    finally:
        client.config_set("maxclients", 10_000)
    assert claimed(book) == []


def test_a_frozen_server_is_away_after_a_moment(client: redis.Redis, server: ValkeyServer, ledgers: Ledgers) -> None:
    """Its claims are given again to whoever asks with the same number."""
    client.lpush(KEYS.jobs(MODEL), *jobs("a", "b"))
    book = ledgers(server.url, socket_timeout=0.2)
    claimed_at_last(book, number=7)
    server.freeze()
    began = time.monotonic()
    try:
        with pytest.raises(RedisUnavailable, match="Timeout"):
            claimed(book, number=7)
    finally:
        server.thaw()
    assert 0.15 < time.monotonic() - began < 5  # What a link takes that is told nothing else.
    assert [one.job_id for one in claimed_at_last(book, number=7)] == ["a", "b"]
