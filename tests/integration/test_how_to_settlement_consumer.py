"""The consumer of docs/how-to/settlement-consumer.md bills every job once, whenever it dies."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.guarded import Guarded, guarded_valkey
from tests.integration.settled import FAILED, KEYS, settle
from tests.jobs import job
from tests.waiting import wait_until

PAGE = (Path(__file__).parents[2] / "docs/how-to/settlement-consumer.md").read_text()
GROUP = "billing"


class Billing:
    """The program of the page, its books, and what it has not acknowledged."""

    def __init__(self, guarded: Guarded, directory: Path) -> None:
        (program,) = re.findall(r"^```python consumer\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
        self._program = str(program)
        self._books = directory / "books.db"
        self._guarded = guarded
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, name: str = "one") -> None:
        """Start it under this name, and wait until it reads."""
        access = {"REDIS_URL": self._guarded.secret_url("settlement"), "BOOKS": str(self._books), "CONSUMER": name}
        self._process = subprocess.Popen([sys.executable, "-c", self._program], env={**os.environ, **access})
        wait_until(self._reads, description="the consumer waits for entries")

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            # What it sent last, and a pause has held back, would else be done after the pause.
            wait_until(lambda: not self._clients(), description="the server has noticed its end")

    def locked(self) -> sqlite3.Connection:
        """Keep it from booking until the connection is closed."""
        connection = sqlite3.connect(self._books, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def bills(self) -> dict[str, int]:
        """What each job was billed, in tokens."""
        connection = sqlite3.connect(self._books)
        rows = connection.execute("SELECT job_id, usage FROM bills").fetchall()
        connection.close()
        return {job_id: json.loads(usage)["total_tokens"] for job_id, usage in rows}

    def unacknowledged(self) -> int:
        """How many entries were read and not acknowledged."""
        return int(self._guarded.admin.xpending(KEYS.settlements, GROUP)["pending"])

    def is_done(self) -> bool:
        """Whether everything was read and acknowledged."""
        (group,) = self._guarded.admin.xinfo_groups(KEYS.settlements)
        return bool(group["lag"] == 0 and group["pending"] == 0)

    def _reads(self) -> bool:
        return any("b" in client["flags"] for client in self._clients())

    def _clients(self) -> list[Any]:
        clients = self._guarded.admin.client_list()
        return [client for client in clients if client["user"] == "speedinfer-settlement"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A Valkey in which a settlement consumer has its rights and no more."""
    with guarded_valkey(tmp_path_factory.mktemp("acl")) as running:
        yield running


@pytest.fixture
def billing(guarded: Guarded, tmp_path: Path) -> Iterator[Billing]:
    """The consumer, started, and ended after the test; it was denied nothing."""
    guarded.admin.flushall()
    guarded.admin.acl_log_reset()
    made = Billing(guarded, tmp_path)
    made.start()
    yield made
    made.kill()
    guarded.admin.client_unpause()
    assert guarded.denied() == []


def test_successes_are_billed_once(billing: Billing, guarded: Guarded) -> None:
    """However often one is settled; failures are acknowledged and not billed."""
    for job_id in ("a", "b", "a"):
        settle(guarded.admin, job(job_id=job_id))
    settle(guarded.admin, job(job_id="failed"), **FAILED)
    wait_until(billing.is_done, description="all is acknowledged")
    assert billing.bills() == {"a": 7, "b": 7}


def test_a_crash_between_reading_and_booking_loses_no_bill(billing: Billing, guarded: Guarded) -> None:
    """It is booked by the next run, also by one of another name."""
    for successor in ("one", "another"):
        lock = billing.locked()
        settle(guarded.admin, job(job_id=f"for-{successor}"))
        wait_until(billing.unacknowledged, description="the entry is read")
        billing.kill()
        lock.close()
        assert f"for-{successor}" not in billing.bills()
        let_time_pass(guarded)
        billing.start(successor)
        wait_until(billing.is_done, description="it is booked and acknowledged")
    assert billing.bills() == {"for-one": 7, "for-another": 7}


def test_a_crash_between_booking_and_acknowledging_bills_nothing_twice(billing: Billing, guarded: Guarded) -> None:
    """The entry comes again, and changes nothing."""
    lock = billing.locked()
    settle(guarded.admin, job(job_id="booked"))
    wait_until(billing.unacknowledged, description="the entry is read")
    guarded.admin.client_pause(60_000, all=False)  # No write, and so no acknowledgement, gets through.
    lock.close()
    wait_until(billing.bills, description="it is booked")
    billing.kill()
    guarded.admin.client_unpause()
    assert billing.unacknowledged() == 1
    billing.start()
    wait_until(billing.is_done, description="it is acknowledged")
    assert billing.bills() == {"booked": 7}


def let_time_pass(guarded: Guarded) -> None:
    """Have what was not acknowledged look as if that were two minutes ago."""
    pending = guarded.admin.xpending_range(KEYS.settlements, GROUP, "-", "+", 10)
    for entry in pending:
        guarded.admin.xclaim(
            KEYS.settlements, GROUP, entry["consumer"], 0, [entry["message_id"]], idle=120_000, justid=True
        )
