"""What a worker tells the outside of its work, where that is configured: metrics, and traces. Else nothing is made, and nothing costs."""

from collections.abc import Callable, Mapping

from settings.schema import Settings
from tasks.generate import Clock, Inference
from worker.clock import RedisClock
from worker.explained import Explained
from worker.intake_ports import Committer
from worker.journals import Journal, Journals
from worker.keys import Keys
from worker.metrics.counters import Counters
from worker.metrics.links import CountedLink
from worker.metrics.service import Health, Metrics, Sources
from worker.metrics.triton import triton_metrics_of
from worker.metrics.watch import LOOK_SECONDS, Watch
from worker.redis_link import RedisLink
from worker.tracing.service import Traces
from worker.tracing.wanted import TracesWanted


class Telemetry:
    """Stands between the parts of a worker and those who watch it."""

    def __init__(
        self, settings: Settings, wanted: TracesWanted, keys: Keys, clock: Clock, redis_clock: RedisClock
    ) -> None:
        """Make what is configured; nothing is served or sent yet."""
        self.health: Health = dict
        """Gives the fields of the worker's health key, once it has started."""
        self.explained = Explained(clock)
        """Takes what this worker finds of why jobs wait, where that is its turn."""
        self._url = settings.redis_url.get_secret_value()
        self._counters: Counters | None = None
        self._metrics: Metrics | None = None
        self._traces = Traces(wanted, settings.worker_id, clock) if wanted.exporters else None
        if settings.metrics_address is not None:
            self._counters = Counters(settings.supported_models)
            watch = Watch(self.link(), keys, settings.supported_models, settings.pool_name, redis_clock)
            triton = triton_metrics_of(settings, clock.monotonic_ms) if settings.pass_through_triton_metrics else None
            sources = Sources(
                settings.worker_id, settings.pool_name, self._counters, watch, triton, self._health, self.explained
            )
            self._metrics = Metrics(settings.metrics_address, sources, min(LOOK_SECONDS, settings.heartbeat_seconds))

    def link(self) -> RedisLink:
        """Return a connection to Redis of its own, not connected yet."""
        return RedisLink(self._url) if self._counters is None else CountedLink(self._url, self._counters.redis_errors)

    def journal(self, tally: Journal) -> Journal:
        """Return what is to be told of each job's end, the tally included."""
        told: list[Journal] = [tally]
        told += [] if self._counters is None else [self._counters]
        told += [] if self._traces is None else [self._traces.runs]
        return Journals(*told) if len(told) > 1 else tally

    def inference(self, inference: Inference) -> Inference:
        """Return what runs a job's inference."""
        return inference if self._traces is None else self._traces.inference(inference)

    def committer(self, committer: Committer) -> Committer:
        """Return what carries exchanges out."""
        return committer if self._traces is None else self._traces.committer(committer)

    def start(self) -> tuple[Callable[[], None], ...]:
        """Begin to tell; return the loops that are to be run meanwhile.

        Raises:
            AddressInUse: `metrics_address` cannot be listened on.
        """
        if self._traces is not None:
            self._traces.start()
        if self._metrics is None:
            return ()
        self._metrics.start()
        return (self._metrics.run,)

    def close(self) -> None:
        """Tell what is left, and nothing more."""
        if self._traces is not None:
            self._traces.close()
        if self._metrics is not None:
            self._metrics.close()

    def _health(self) -> Mapping[str, str]:
        return self.health()
