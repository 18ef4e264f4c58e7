"""Triton's own metrics for our scrape. A Triton that does not answer costs a scrape one short wait, and the next ones nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

import structlog
from gevent.lock import BoundedSemaphore

from settings.schema import Settings
from worker.metrics.passing import NoMetrics, labelled
from worker.triton.endpoint import Endpoint
from worker.triton.failures import ExchangeFailed
from worker.triton.http import HttpClients, Limits, Request

TIMEOUT_SECONDS: Final = 1.0
FAILURE_KEPT_MS: Final = 10_000.0
"""How long after a failure Triton is not asked again."""

SUCCESS_KEPT_MS: Final = 1_000.0
"""How long an answer is good for another scrape: several servers may scrape one worker."""

_LARGEST_BYTES: Final = 4 << 20
_OK: Final = 200

log = structlog.get_logger()


@dataclass(slots=True)
class TritonMetrics:
    """Triton's metrics, labelled by pool."""

    clients: HttpClients
    path: str
    pool: str
    monotonic_ms: Callable[[], float]
    _text: str | None = None
    _good_until_ms: float = float("-inf")
    _asking: BoundedSemaphore = field(default_factory=BoundedSemaphore)
    _has_failed: bool = False

    def text(self) -> str | None:
        """Return the lines of Triton's families, None where it does not answer with any. Takes TIMEOUT_SECONDS at the most."""
        with self._asking:  # Of scrapes that come together, one asks.
            if self.monotonic_ms() >= self._good_until_ms:
                self._text = self._asked()
                kept = FAILURE_KEPT_MS if self._text is None else SUCCESS_KEPT_MS
                self._good_until_ms = self.monotonic_ms() + kept
            return self._text

    def close(self) -> None:
        """Close the connection."""
        self.clients.close()

    def _asked(self) -> str | None:
        text, reason = self._answer()
        if text is None and not self._has_failed:
            log.warning("triton_metrics.became_unavailable", reason=reason)
        elif text is not None and self._has_failed:
            log.info("triton_metrics.became_available")
        self._has_failed = text is None
        return text

    def _answer(self) -> tuple[str | None, str]:
        """Return the text, or why there is none."""
        limits = Limits(TIMEOUT_SECONDS, TIMEOUT_SECONDS, _LARGEST_BYTES)
        try:
            answer = self.clients.exchange(Request(self.path), limits)
            if answer.status != _OK:
                return None, f"status {answer.status}"
            return labelled(answer.body.decode(), "pool", self.pool), ""
        except ExchangeFailed as failed:
            return None, failed.reason
        except (NoMetrics, UnicodeDecodeError):
            return None, "the answer is no metrics"


def metrics_page(settings: Settings) -> tuple[Endpoint, str]:
    """Return where a worker's Triton shows its metrics, and the path. The headers for inferences are not sent: they may be secrets."""
    url = urlsplit(settings.triton_metrics_url)
    base = Endpoint.of(settings.model_copy(update={"runtime_endpoint": settings.triton_metrics_url}))
    return replace(base, base_path="", headers=()), url.path or "/metrics"


def triton_metrics_of(settings: Settings, monotonic_ms: Callable[[], float]) -> TritonMetrics:
    """Return those of a worker's Triton."""
    endpoint, path = metrics_page(settings)
    return TritonMetrics(HttpClients(endpoint, 1), path, settings.pool_name, monotonic_ms)
