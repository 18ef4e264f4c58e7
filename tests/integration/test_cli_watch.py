"""``speedinfer status --watch``: it goes on, shows what changes, bears an outage and ends with Ctrl-C."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, Any

import pytest
import redis

from tests.waiting import wait_until
from worker.keys import Keys
from worker.sandbox.valkey_server import ValkeyServer

KEYS = Keys("speedinfer")


class Watch:
    """A running command, with what it has written so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", streams: list[IO[bytes] | int]) -> None:
        self.process = process
        self.written = [b""] * len(streams)
        for at, stream in enumerate(streams):
            Thread(target=self._read, args=(at, stream), daemon=True).start()

    def _read(self, at: int, stream: IO[bytes] | int) -> None:
        descriptor = stream if isinstance(stream, int) else stream.fileno()
        try:
            while chunk := os.read(descriptor, 65536):
                self.written[at] += chunk
        except OSError:  # A terminal that its last writer has closed.
            return

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The whole lines of stdout, as JSON."""
        return [json.loads(line) for line in self.written[0].split(b"\n")[:-1]]

    @property
    def screen(self) -> str:
        """What was written to the terminal, without what moves and colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.written[0].decode(errors="replace"))

    def until(self, holds: Callable[[], object], description: str) -> None:
        """Wait until something holds."""
        wait_until(holds, description=f"{description}; written: {self.written}")

    def interrupt(self) -> int:
        """Do what Ctrl-C does, and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@contextmanager
def watching(url: str, *options: str, terminal: bool = False) -> Iterator[Watch]:
    """Watch a Redis, on a terminal of its own if wanted."""
    command = [sys.executable, "-m", "worker.cli", "status", "--watch", "--every", "0.1", "--redis-url", url, *options]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPEEDINFER_")}
    environment = {**kept, "TERM": "xterm", "COLUMNS": "160", "LINES": "50"}
    own, its = pty.openpty() if terminal else (0, subprocess.PIPE)
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdout=its, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stderr
        try:
            yield Watch(process, [own if terminal else process.stdout or 0, process.stderr])
        finally:
            process.kill()
            if terminal:
                os.close(own)
                os.close(its)


def test_scripts_get_an_object_a_look(valkey: redis.Redis, redis_url: str) -> None:
    """Until Ctrl-C, which is no failure."""
    with watching(redis_url, "--json") as watch:
        watch.until(lambda: len(watch.objects) >= 2, "there are two looks")
        assert watch.objects[-1]["models"] == []
        valkey.sadd(KEYS.paused, "acme/model-1")
        watch.until(lambda: watch.objects[-1]["models"], "the new model is seen")
        assert watch.objects[-1]["models"][0]["why"]["kind"] == "paused"
        assert watch.interrupt() == 0
        assert watch.written[1] == b""


def test_people_see_the_tables_change_in_their_place(valkey: redis.Redis, redis_url: str) -> None:
    """On a terminal; the last look stays there after the end."""
    with watching(redis_url, terminal=True) as watch:
        watch.until(lambda: "no worker has registered" in watch.screen, "the first look is there")
        assert b"\x1b[?1049h" in watch.written[0]
        valkey.sadd(KEYS.paused, "acme/model-1")
        watch.until(lambda: "paused: no reason given" in watch.screen, "the model is there")
        assert watch.interrupt() == 0
        watch.until(lambda: b"\x1b[?1049l" in watch.written[0], "the screen before is back")
        _, _, after = watch.written[0].partition(b"\x1b[?1049l")
        watch.until(
            lambda: b"acme/model-1" in watch.written[0].partition(b"\x1b[?1049l")[2], f"the last look, in {after!r}"
        )


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["people", "scripts"])
def test_an_outage_is_said_and_waited_for(durable_valkey: ValkeyServer, options: tuple[str, ...]) -> None:
    """It is not taken for a fleet without workers."""
    with watching(durable_valkey.url, *options, terminal=not options) as watch:
        watch.until(lambda: b"settlements" in watch.written[0], "the first look is there")
        durable_valkey.kill()
        stream = 1 if options else 0
        watch.until(lambda: b"cannot be reached" in watch.written[stream], "the outage is said")
        durable_valkey.restart()
        with redis.Redis.from_url(durable_valkey.url) as client:
            client.sadd(KEYS.paused, "acme/model-1")
        watch.until(lambda: b"acme/model-1" in watch.written[0], "it goes on")
        assert watch.interrupt() == 0


def test_a_redis_that_never_answered_ends_it() -> None:
    """A wrong address is no outage."""
    with watching("redis://127.0.0.1:1/0") as watch:
        assert watch.process.wait(30) == 3
