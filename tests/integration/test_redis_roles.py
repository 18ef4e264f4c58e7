"""What each user of deploy/redis/users.acl may not do, and what those may that run no process of ours."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from tests.acceptance.fleet import KEYS
from tests.acceptance.gateway import QUEUE, push_jobs
from tests.fakes import FakeClock
from tests.guarded import NOBODYS, USERS, Guarded, guarded_valkey
from tests.integration.command import objects
from tests.integration.command import run as command
from tests.jobs import MODEL, job_json
from worker.explained import Explained
from worker.waits import Waits


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The module's Valkey, in which only the roles' users are."""
    with guarded_valkey(tmp_path_factory.mktemp("acl")) as running:
        yield running


@pytest.fixture
def users(guarded: Guarded) -> Guarded:
    """The same, empty and with nothing denied yet."""
    guarded.admin.flushall()
    guarded.admin.acl_log_reset()
    return guarded


def test_a_settlement_consumer_reads_acknowledges_and_trims(users: Guarded) -> None:
    """With a group, as the page says, and with our commands."""
    for n in range(3):
        users.admin.xadd(KEYS.settlements, {"job_id": f"j-{n}", "status": "failed", "model": MODEL, "result": "{}"})
    consumer = users.client("settlement")
    consumer.xgroup_create(KEYS.settlements, "billing", id="0")
    ((_, entries),) = consumer.xreadgroup("billing", "one", {KEYS.settlements: ">"})
    consumer.xautoclaim(KEYS.settlements, "billing", "two", min_idle_time=0)
    assert consumer.xack(KEYS.settlements, "billing", *(stream_id for stream_id, _ in entries)) == 3
    access = users.environment("settlement")
    assert len(objects(command("settlements", **access))) == 3
    assert len(objects(command("settlements", "groups", **access))) == 1
    assert objects(command("settlements", "trim", **access))[0]["dropped"] > 0
    assert users.denied() == []


def test_the_scaler_counts_what_is_queued_and_what_runs(users: Guarded) -> None:
    """As KEDA does: by one script that asks for the kind of a key and for its length."""
    push_jobs(users.admin, "a", "b")
    users.admin.hset(KEYS.running, "c", "w/1.1")
    count = """local kind = redis.call('type', KEYS[1]).ok
    local lengths = {zset = 'zcard', list = 'llen', hash = 'hlen', none = 'llen'}
    return redis.call(lengths[kind], KEYS[1])"""
    scaler = users.client("scaler")
    assert [scaler.eval(count, 1, key) for key in (QUEUE, KEYS.running, KEYS.waiting)] == [2, 1, 0]
    assert users.denied() == []


def test_a_worker_tells_why_jobs_wait(users: Guarded) -> None:
    """The first of its fleet in each minute does, and the others ask when the minute is over."""
    push_jobs(users.admin, "waits")
    users.admin.hset(KEYS.models, MODEL, "{}")
    for worker_id in ("first", "second"):
        waits = Waits(lambda: users.client("worker"), KEYS, worker_id, lambda: 0.5, Explained(FakeClock()), 0.0)
        with capture_logs() as lines:
            assert 0 < waits.look() <= 60_000
        assert [line["event"] for line in lines] == (["model.waited"] if worker_id == "first" else [])
    assert users.denied() == []


FORGERIES: list[tuple[str, tuple[Any, ...]]] = [
    # Nobody but a worker settles.
    *(
        (role, command)
        for role in ("gateway", "batch", "settlement", "operator", "scaler")
        for command in (
            ("XADD", KEYS.settlements, "*", "job_id", "forged"),
            ("SET", KEYS.result("j"), "{}"),
            ("HSET", KEYS.settled("j"), "status", "succeeded"),
            ("HSET", KEYS.claims("w"), "1.1", "x"),
            ("DEL", KEYS.settlements),
            ("EVAL", "return redis.call('XADD', KEYS[1], '*', 'job_id', 'forged')", 1, KEYS.settlements),
            ("FLUSHALL",),
            ("CONFIG", "SET", "maxmemory", "1"),
            ("ACL", "SETUSER", "me", "on"),
            ("KEYS", "*"),
        )
    ),
    # A worker neither, but by its scripts' commands in its namespace.
    ("worker", ("XADD", "other:settlements", "*", "job_id", "x")),
    ("worker", ("FLUSHALL",)),
    ("worker", ("CONFIG", "GET", "*")),
    ("worker", ("XTRIM", KEYS.settlements, "MAXLEN", 0)),
    # Who settles does not enqueue, and sees no prompts.
    *(("settlement", (word, QUEUE, *rest)) for word, *rest in (("LPUSH", "x"), ("LRANGE", 0, -1), ("LLEN",))),
    ("settlement", ("GET", KEYS.result("j"))),
    # A gateway reads nobody's jobs, and takes none away.
    *(
        ("gateway", (word, QUEUE, *rest))
        for word, *rest in (("LRANGE", 0, -1), ("LINDEX", -1), ("RPOP",), ("DEL",), ("SET", "x"), ("PEXPIRE", 1))
    ),
    ("gateway", ("XRANGE", KEYS.settlements, "-", "+")),
    ("gateway", ("SADD", "speedinfer:paused", MODEL)),
    ("gateway", ("PUBLISH", "speedinfer:/0.celery.pidbox", "{}")),
    ("operator", ("DEL", QUEUE)),
    ("operator", ("RPOP", QUEUE)),
    ("scaler", ("LRANGE", QUEUE, 0, -1)),
]


@pytest.mark.parametrize(
    ("role", "words"), FORGERIES, ids=lambda each: each if isinstance(each, str) else " ".join(map(str, each[:2]))
)
def test_what_is_not_a_roles_is_denied(users: Guarded, role: str, words: tuple[Any, ...]) -> None:
    """By the server, whatever the client is; nothing is changed by it."""
    users.admin.lpush(QUEUE, job_json(job_id="kept"))
    client = users.client(role)
    with pytest.raises(redis.exceptions.NoPermissionError):
        _run(client, words)
    assert [key.decode() for key in users.admin.keys("*")] == [QUEUE]
    client.close()


def _run(client: Any, words: tuple[Any, ...]) -> None:
    try:
        client.execute_command(*words)
    except redis.ResponseError as error:
        # Said of a command within a script.
        if "permission" in str(error).lower() or "ACL failure" in str(error):
            raise redis.exceptions.NoPermissionError(str(error)) from error
        raise


def test_nobody_gets_in_without_a_password_of_their_own() -> None:
    """The file as it is lets nobody in: no default user, and no password that is known."""
    assert USERS[0].startswith("user default off ")
    assert all(NOBODYS in line and " nopass" not in line for line in USERS[1:])
