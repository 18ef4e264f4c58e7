"""One producer: a process that pushes its part of the load, whatever happens to Redis, and writes down what it did.

``python -m tests.chaos.producer REDIS_URL SEED JOBS SECONDS SHARES PART OF START JOURNAL``, times in unix seconds.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import redis

from tests.chaos.load import Cancel, Kind, Push, draw_load
from worker import lua
from worker.connections import redis_client
from worker.keys import Keys

KEYS: Final = Keys("speedinfer")
_AHEAD: Final = 300
"""A queue longer than this is not made longer."""

_CANCEL_SECONDS: Final = 691_200
_MARKER_MS: Final = 3_600_000


@dataclass(slots=True)
class Producer:
    """Does one part of a load against one Redis."""

    client: redis.Redis
    journal: TextIO
    start: float

    def do(self, one: Push | Cancel) -> None:
        """Wait until it is time, then do it until Redis says that it is done."""
        time.sleep(max(0.0, self.start + one.at - time.time()))
        if isinstance(one, Cancel):
            self._note(cancelled=one.job_id, at_ms=self._cancel(one.job_id))
            return
        while self._insisting(lambda: self.client.llen(KEYS.jobs(one.queue)))[0] > _AHEAD:
            time.sleep(0.05)
        if one.cancel_first:
            self._note(cancelled=one.job_id, at_ms=self._cancel(one.job_id))
        self._note(pushed=one.number, sends=self._push(one))

    def _push(self, push: Push) -> int:
        """Return how often it was sent and may have been done."""
        queue = KEYS.jobs(push.queue)
        if not push.careful:
            return self._insisting(lambda: self.client.lpush(queue, push.raw))[1]
        once = self.client.register_script(lua.load("enqueue_once"))
        arguments: list[str | bytes | int] = [f"push-{push.number}", push.raw, _MARKER_MS]
        self._insisting(lambda: once(keys=[queue, KEYS.enqueued(f"push-{push.number}")], args=arguments))
        return 1

    def _cancel(self, job_id: str) -> int:
        """Return a time by Redis' clock at which the job was cancelled already."""

        def cancel() -> Any:
            pipe = self.client.pipeline(transaction=False)
            pipe.set(KEYS.cancel(job_id), 1, ex=_CANCEL_SECONDS)
            pipe.time()
            return pipe.execute()[1]

        (seconds, micros), _ = self._insisting(cancel)
        return int(seconds) * 1000 + int(micros) // 1000

    def _insisting(self, call: Any) -> tuple[Any, int]:
        """Return the first answer, and how many calls it took."""
        calls = 0
        while True:
            calls += 1
            try:
                return call(), calls
            except (redis.ConnectionError, redis.TimeoutError):  # Also while it loads its log.
                time.sleep(0.02)

    def _note(self, **fields: Any) -> None:
        self.journal.write(json.dumps(fields) + "\n")
        self.journal.flush()


def main(arguments: list[str]) -> None:
    """Run one producer to the end of its part."""
    url, seed, jobs, seconds, shares, part, of, start, journal = arguments
    drawn = {Kind(name): share for name, share in json.loads(shares).items()}
    load = draw_load(int(seed), int(jobs), float(seconds), drawn)
    with Path(journal).open("w") as stream:
        producer = Producer(redis_client(url), stream, float(start))
        for one in load.part(int(part), int(of)):
            producer.do(one)


if __name__ == "__main__":
    main(sys.argv[1:])
