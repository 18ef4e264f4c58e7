"""A worker's metrics as one part: what counts, what looks, and what is shown."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import gevent
import structlog

from worker.explained import Explained
from worker.metrics import families
from worker.metrics.counters import Counters
from worker.metrics.samples import Exposition, Sample
from worker.metrics.server import MetricsServer, Pages
from worker.metrics.standing import CONSUMING, seen_samples, standing_samples, why_samples
from worker.metrics.triton import TritonMetrics
from worker.metrics.watch import Watch

Health = Callable[[], Mapping[str, str]]
"""Gives the fields of the worker's health key as they are now; none before there are any."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a scrape's samples come from; ``triton`` is None where its metrics are not passed through."""

    worker_id: str
    pool: str
    counters: Counters
    watch: Watch
    triton: TritonMetrics | None
    health: Health
    explained: Explained

    def samples(self, *, has_triton: bool) -> Iterator[Sample]:
        """Return all samples of the worker's own families as they are now."""
        yield from self.counters.samples()
        yield from standing_samples(self.worker_id, self.health())
        seen = self.watch.last
        yield from seen_samples(self.pool, seen)
        if seen is not None:
            yield from why_samples(self.explained.waits())
        if self.triton is not None:
            yield Sample(families.TRITON_METRICS_UP, (self.pool,), int(has_triton))

    def text(self) -> bytes:
        """Return a scrape's text."""
        passed = self.triton.text() if self.triton else None
        own = Exposition(lambda: self.samples(has_triton=passed is not None), lambda: gevent.sleep(0)).text()
        return own + (passed or "").encode()

    def readiness(self) -> tuple[bool, str]:
        """Return whether jobs are being taken, and the worker's state."""
        state = self.health().get("state", "starting")
        return state in CONSUMING, state


class Metrics:
    """The metrics of one worker, served at one address, host:port."""

    def __init__(self, address: str, sources: Sources, look_seconds: float) -> None:
        """Listen to nothing yet; Redis is looked at every ``look_seconds``."""
        self._sources = sources
        self._look_seconds = look_seconds
        self._server = MetricsServer(address, Pages(sources.text, sources.readiness))

    def start(self) -> None:
        """Begin to serve.

        Raises:
            AddressInUse: the address is another process', or none of this machine.
        """
        self._server.start()
        log.info("metrics.were_served", address=self._server.address)

    def run(self) -> None:
        """Look at what waits in Redis, until killed."""
        while True:
            self._sources.watch.look()
            gevent.sleep(self._look_seconds)

    def close(self) -> None:
        """Stop serving."""
        self._server.close()
        self._sources.watch.link.close()
        if self._sources.triton is not None:
            self._sources.triton.close()
