"""How many requests Triton has waiting, where its metrics can be read. A Triton that does not show them is asked now and then."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Self

import structlog

from settings.schema import Settings
from worker.metrics.triton import metrics_page
from worker.triton.failures import ExchangeFailed
from worker.triton.http import HttpClients, Limits, Request

ASKED_EVERY_MS: Final = 1_000.0
ASKED_AGAIN_MS: Final = 30_000.0
"""How soon after a failure it is asked again."""

_TIMEOUT_SECONDS: Final = 0.5
_LARGEST_BYTES: Final = 4 << 20
_OK: Final = 200
_SAMPLE: Final = re.compile(
    r'^nv_inference_pending_request_count\{(?:[^}]*,)?model="([^"]*)"[^}]*\} ([0-9.e+]+)', re.MULTILINE
)

log = structlog.get_logger()


def pending_in(text: str, models: Collection[str]) -> int | None:
    """Return how many requests of these Triton models wait, by a page of Triton's metrics; None where it does not say."""
    found = [float(value) for model, value in _SAMPLE.findall(text) if model in models]
    return round(sum(found)) if found else None


@dataclass(slots=True)
class PendingRequests:
    """The requests of some models of one Triton that wait there."""

    clients: HttpClients
    path: str
    models: frozenset[str]
    monotonic_ms: Callable[[], float]
    _ask_at_ms: float = field(default=float("-inf"))
    _has_failed: bool = False

    @classmethod
    def of(cls, settings: Settings, monotonic_ms: Callable[[], float]) -> Self:
        """Return those of a worker's models; nothing is connected yet."""
        endpoint, path = metrics_page(settings)
        models = frozenset(settings.runtime_for(model).model_name for model in settings.supported_models)
        return cls(HttpClients(endpoint, 1), path, models, monotonic_ms)

    def count(self) -> int | None:
        """Return how many wait; None where that is not known, or was asked less than ASKED_EVERY_MS ago. Takes half a second at most."""
        now_ms = self.monotonic_ms()
        if now_ms < self._ask_at_ms:
            return None
        count = self._asked()
        if (count is None) != self._has_failed:
            log.info("pending_requests.became_unknown" if count is None else "pending_requests.became_known")
        self._has_failed = count is None
        self._ask_at_ms = now_ms + (ASKED_AGAIN_MS if count is None else ASKED_EVERY_MS)
        return count

    def close(self) -> None:
        """Close the connection."""
        self.clients.close()

    def _asked(self) -> int | None:
        try:
            answer = self.clients.exchange(
                Request(self.path), Limits(_TIMEOUT_SECONDS, _TIMEOUT_SECONDS, _LARGEST_BYTES)
            )
        except ExchangeFailed:
            return None
        return pending_in(answer.body.decode(errors="replace"), self.models) if answer.status == _OK else None
