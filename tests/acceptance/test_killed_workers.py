"""Workers that are killed under load: whatever was in a queue is still somewhere."""

import random
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tasks.result import AttemptCode
from tests.acceptance.fleet import KEYS, Client, Fleet, models
from tests.acceptance.gateway import dead_letters, settlements
from tests.jobs import job_json
from tests.waiting import wait_until
from worker.keys import PRIORITIES

KILLS = 12
GOOD, RAISING = "acme/model-1", "acme/faulty"


class Load:
    """Jobs and garbage, pushed by a thread as fast as workers settle them; ``names`` are those that were pushed."""

    def __init__(self, client: Client, ahead: int) -> None:
        self.names: list[str] = []
        self._client = client
        self._ahead = ahead
        self._stopping = threading.Event()

    @contextmanager
    def running(self) -> Iterator["Load"]:
        """Push while the context lasts."""
        thread = threading.Thread(target=self._push)
        thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            thread.join()

    def _push(self) -> None:
        while not self._stopping.is_set():
            if sum(self._client.llen(KEYS.jobs(model)) for model in (GOOD, RAISING)) > self._ahead:
                self._stopping.wait(0.005)
                continue
            self._push_one(len(self.names))

    def _push_one(self, n: int) -> None:
        name = f"name-{n:05}-"
        match n % 10:
            case 3:
                queue, raw = KEYS.jobs(GOOD), f"garbage {name}".encode()
            case 6:
                queue, raw = KEYS.jobs(RAISING), job_json(job_id=name, model=RAISING, prompt="raise an error")
            case _:
                queue = KEYS.jobs(GOOD) + PRIORITIES[n % 4]
                raw = job_json(job_id=name, prompt=f"sleep=0.0{n % 5} hello")
        self._client.lpush(queue, raw)
        self.names.append(name)


def places(client: Client) -> dict[str, set[str]]:
    """Which names are where, of all the places in which a job can be."""
    stored: dict[str, bytes] = {}
    for key in client.scan_iter(count=1000):
        match client.type(key):
            case b"list" if not key.startswith(KEYS.attempts("").encode()):
                stored[key.decode()] = b"\n".join(client.lrange(key, 0, -1))
            case b"zset" if key.decode() == KEYS.waiting:
                stored["waiting"] = b"\n".join(client.zrange(key, 0, -1))
            case b"hash" if key.startswith(f"{KEYS.prefix}claims:".encode()):
                stored[key.decode()] = b"\n".join(client.hvals(key))
            case b"stream":
                stored[key.decode()] = b"\n".join(b"\n".join(fields.values()) for _, fields in client.xrange(key))
    return {place: {name.decode() for name in re.findall(rb"name-\d+-", content)} for place, content in stored.items()}


def nowhere(client: Client, names: list[str]) -> set[str]:
    """The names that are in no place."""
    return set(names).difference(*places(client).values())


def assert_somewhere(client: Client, names: list[str]) -> None:
    """Fail if a name is in no place for good, while no worker lives.

    What a dead one has sent may still reach Redis while the places are looked at, and move a job behind the look.
    """
    wait_until(lambda: not nowhere(client, names), description="every job is somewhere", timeout=5)


def wait_for_more(client: Client, more: int, *, interval: float) -> None:
    """Return when so many more jobs are settled."""
    goal = client.xlen(KEYS.settlements) + more
    wait_until(
        lambda: client.xlen(KEYS.settlements) >= goal, description=f"{more} more jobs are settled", interval=interval
    )


def test_twelve_kills_of_a_busy_worker_lose_no_job_and_settle_none_twice(fleet: Fleet, valkey: Client) -> None:
    """Killed at any moment, with the same id or another: each job is always somewhere, and in the end each has its end."""
    draw = random.Random(7)
    behind = {"lease_seconds": 1, "concurrency": 8, **models(**{"model-1": "text_generation", "faulty": "faulty"})}
    behind["gpu_pool"] = {
        "max_concurrency": 8 * (KILLS + 1)
    }  # What dead workers had started keeps its slots for a while.
    with Load(valkey, ahead=40).running() as load:
        for kill in range(KILLS):
            worker = fleet.start(worker_id="the-same" if kill % 2 else f"another-{kill}", until=("ready",), **behind)
            wait_for_more(valkey, draw.randrange(5, 60), interval=draw.uniform(0.0005, 0.01))
            worker.kill()
            assert_somewhere(valkey, [*load.names])
        last = fleet.start(worker_id="last", **behind)
    wait_until(
        lambda: (
            not any(valkey.llen(KEYS.jobs(model) + each) for model in (GOOD, RAISING) for each in PRIORITIES)
            and not valkey.zcard(KEYS.waiting)
            and not valkey.exists(KEYS.claimants)
        ),
        description="the last worker has done what the killed ones left",
        timeout=60,
    )

    names = load.names
    results = settlements(valkey)
    ended = Counter(entry_id for entry_id, entries in results.items() for _ in entries)
    buried = Counter(letter["raw"].decode().removeprefix("garbage ") for letter in dead_letters(valkey))
    assert dict(ended + buried) == dict.fromkeys(names, 1)
    # The kills did hit workers at work.
    lost = [
        attempt
        for entries in results.values()
        for result in entries
        for attempt in result.attempts
        if attempt.code == AttemptCode.WORKER_LOST
    ]
    assert len(lost) >= KILLS
    assert last.stop() == 0
    assert last.claims() == {}


@pytest.mark.leaves("claims:*")
def test_a_killed_worker_leaves_claims_that_name_it_and_hold_the_bytes(fleet: Fleet, valkey: Client) -> None:
    """What recovery will need is there: whose claims they were, from which list they came, and the very bytes."""
    worker = fleet.start(concurrency=2)
    raws = [job_json(job_id=f"j-{n}", prompt="sleep=5 held") for n in range(2)]
    valkey.lpush(KEYS.jobs(GOOD), raws[0])
    valkey.lpush(KEYS.jobs(GOOD) + PRIORITIES[2], raws[1])
    wait_until(lambda: len(worker.claims()) == 2, description="both jobs are claimed")

    worker.kill()

    lists = [KEYS.jobs(GOOD), KEYS.jobs(GOOD) + PRIORITIES[2]]
    claimed = [record.split(b"\n", 4) for record in worker.claims().values()]
    assert sorted((name, job_id, raw) for name, job_id, _, _, raw in claimed) == [
        (lists[n].encode(), f"j-{n}".encode(), raws[n]) for n in range(2)
    ]
    assert valkey.ttl(next(valkey.scan_iter(f"{KEYS.prefix}claims:triton-01:*"))) == -1
