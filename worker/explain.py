"""Why jobs of a model wait, in words for people. Pure.

Without writes nothing moves. Else each worker that declares a model has one obstacle at most in the way of its jobs, the first of:
it drains, the circuit is open, it is out of order with this model, it stands still, a limit is reached. A model waits only while every
one of its workers has one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tasks.errors import ErrorCode
from worker import health
from worker.duration import duration
from worker.fleet_views import CircuitView, ModelView, Pause, Runner
from worker.gate import Cause, Standing
from worker.pool_use import PoolUse

_NAMED = 3
"""How many workers and reasons are named; there may be hundreds."""


class Kind(StrEnum):
    """Why jobs of a model wait, those first that are nearest to being served; SERVED and EMPTY if they do not."""

    SERVED = "served"
    EMPTY = "empty"
    TURN = "turn"
    SLOTS = "slots"
    REQUESTS = "requests"
    TOKENS = "tokens"
    PROBES = "probes"
    QUEUE_FULL = "queue_full"
    CIRCUIT = "circuit"
    STARTING = "starting"
    NOT_READY = "not_ready"
    UNAVAILABLE = "unavailable"
    MISMATCH = "contract_mismatch"
    OUT_OF_ORDER = "out_of_order"
    STANDS_STILL = "stands_still"
    DRAINED = "drained"
    PAUSED = "paused"
    NO_WORKER = "no_worker"
    NO_WRITES = "no_writes"


_OF_LOAD = frozenset({Kind.TURN, Kind.SLOTS, Kind.REQUESTS, Kind.TOKENS, Kind.PROBES, Kind.QUEUE_FULL})
"""What passes by itself as jobs end, and is in nobody's way where none wait."""

NEEDS_MENDING = frozenset(
    {
        *(Kind.NOT_READY, Kind.UNAVAILABLE, Kind.MISMATCH, Kind.OUT_OF_ORDER, Kind.CIRCUIT),
        *(Kind.STANDS_STILL, Kind.NO_WORKER, Kind.NO_WRITES),
    }
)
"""What is wrong, and neither load nor a start nor an operator's own word."""

_ORDER = tuple(Kind)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why, for scripts and for people; the words are empty where nothing waits."""

    kind: Kind
    words: str = ""

    @property
    def waits(self) -> bool:
        """Whether something is in the way of every job of the model."""
        return self.kind not in {Kind.SERVED, Kind.EMPTY}


def why(view: ModelView, now_ms: int, no_writes: str | None = None) -> Reason:
    """Return why jobs of a model wait at Redis' unix ms ``now_ms``; ``no_writes`` is why Redis takes none, None where it does."""
    if no_writes is not None:
        return Reason(Kind.NO_WRITES, f"Redis takes no writes: {no_writes}")
    if view.pause is not None:
        return Reason(Kind.PAUSED, _paused(view.pause, now_ms))
    if not view.runners:
        return Reason(Kind.NO_WORKER, _no_worker(view.lost))
    obstacles = [(runner.worker_id, obstacle(runner, now_ms)) for runner in view.runners]
    found = sorted({reason for _, reason in obstacles if reason}, key=lambda reason: _ORDER.index(reason.kind))
    if not all(reason for _, reason in obstacles) or (not view.queued and found[0].kind in _OF_LOAD):
        return Reason(Kind.SERVED if view.queued or view.running else Kind.EMPTY)
    words = [
        f"{reason.words} ({_names([who for who, its in obstacles if its == reason])})" for reason in found[:_NAMED]
    ]
    more = [f"and {len(found) - _NAMED} more reasons"] if len(found) > _NAMED else []
    return Reason(found[0].kind, "; ".join([*words, *more]))


def obstacle(runner: Runner, now_ms: int) -> Reason | None:
    """Return what keeps one worker from taking jobs of the model, None for nothing."""
    return next(_obstacles(runner, now_ms), None)


def _obstacles(runner: Runner, now_ms: int) -> Iterator[Reason]:
    if runner.state == "draining":
        yield Reason(Kind.DRAINED, "draining, since it was told to stop")
    if runner.circuit.state == health.OPEN:
        yield Reason(Kind.CIRCUIT, "; ".join([_open_circuit(runner.circuit, now_ms), *_found_by_looks(runner)]))
    if runner.standing == Standing.STARTING:
        yield Reason(
            Kind.STARTING, f"starting: Triton at {runner.runtime_endpoint} has not answered for this model yet"
        )
    if runner.standing == Standing.PAUSED:
        yield _out_of_order(runner)
    if runner.state == "unavailable" and runner.standing == Standing.READY:
        yield Reason(Kind.STANDS_STILL, "has claimed nothing for a while, though it could: see its log")
    yield from _limits(runner)


def _found_by_looks(runner: Runner) -> Iterator[str]:
    """Yield what looks at the model find while its circuit is open, where that is more than what opened it."""
    found = _out_of_order(runner) if runner.standing == Standing.PAUSED else None
    if found is not None and found.kind in {Kind.NOT_READY, Kind.UNAVAILABLE, Kind.MISMATCH}:
        yield found.words


def _out_of_order(runner: Runner) -> Reason:
    triton_model, endpoint = _triton_model(runner), runner.runtime_endpoint
    if runner.cause == Cause.NOT_READY:
        return Reason(
            Kind.NOT_READY, f"Triton at {endpoint} has {triton_model} not ready: it is not loaded, or is loading"
        )
    if runner.cause == Cause.QUEUE_FULL:
        return Reason(Kind.QUEUE_FULL, f"Triton's own queue of {triton_model} at {endpoint} is full")
    match runner.reason:
        case health.BY_OPERATOR:
            return Reason(Kind.PAUSED, "was resumed, and hears of that with its next heartbeat")
        case ErrorCode.RUNTIME_UNAVAILABLE:
            return Reason(Kind.UNAVAILABLE, f"Triton at {endpoint} is away: it cannot be reached, or refuses")
        case ErrorCode.RUNTIME_CONTRACT_MISMATCH:
            return Reason(
                Kind.MISMATCH,
                f"{triton_model} at {endpoint} does not fit the configuration: speedinfer check shows both sides",
            )
    return Reason(Kind.OUT_OF_ORDER, f"{triton_model} at {endpoint} is out of order: {runner.reason or 'unknown'}")


def _triton_model(runner: Runner) -> str:
    """Return what the worker asks Triton for; a pinned version may be out of order while others of the model are ready."""
    pinned = f"version {runner.triton_version} of " if runner.triton_version is not None else ""
    return pinned + runner.circuit.triton_model


def _open_circuit(circuit: CircuitView, now_ms: int) -> str:
    name = f"the circuit of {circuit.triton_model} at {circuit.endpoint_id}"
    if circuit.is_forced:
        return f"{name} is forced open by {circuit.forced_by or 'an operator'}: {circuit.reason or 'no reason given'}"
    since = f" since {duration(now_ms - circuit.opened_ms)}" if circuit.opened_ms is not None else ""
    until = ""
    if circuit.retry_ms is not None:
        left_ms = circuit.retry_ms - now_ms
        until = (
            f"; tried again in {duration(left_ms)}" if left_ms > 0 else "; tried again when a look at the model passes"
        )
    return f"{name} is open{since}: {circuit.reason or 'unknown'} ({circuit.failures} failures){until}"


def _limits(runner: Runner) -> Iterator[Reason]:
    """Yield the limit that refused the last claim; else one that is reached by what the pool's keys say."""
    words = {
        **_words_of_pool(runner.pool),
        Kind.PROBES: f"the circuit of {runner.circuit.triton_model} is half open, and its probes run",
    }
    if runner.waits in words:
        yield Reason(Kind(runner.waits), words[Kind(runner.waits)])
    yield from (Reason(kind, words[kind]) for kind in _reached(runner.pool))
    if runner.concurrency and runner.in_flight >= runner.concurrency:
        yield Reason(Kind.SLOTS, f"has {runner.in_flight} jobs in hand, as many as its concurrency lets it")


def _reached(pool: PoolUse) -> Iterator[Kind]:
    if pool.slots_limit is not None and pool.slots >= pool.slots_limit:
        yield Kind.SLOTS
    if pool.requests_limit is not None and pool.requests >= pool.requests_limit:
        yield Kind.REQUESTS
    if pool.tokens is not None and pool.tokens <= 0:
        yield Kind.TOKENS


def _words_of_pool(pool: PoolUse) -> dict[Kind, str]:
    """Return what there is to say of each limit that the pool has."""
    words = {Kind.TURN: f"it is the turn of other workers of pool {pool.name}"}
    if pool.slots_limit is not None:
        rest = ", and the rest is kept for other models" if pool.slots < pool.slots_limit else ""
        words[Kind.SLOTS] = f"pool {pool.name} has no slot for it: {pool.slots} of {pool.slots_limit} are taken{rest}"
    if pool.requests_limit is not None:
        granted = f"{pool.requests} of {pool.requests_limit}"
        words[Kind.REQUESTS] = f"pool {pool.name} has granted {granted} requests in the last 60 s"
    if pool.tokens is not None:
        left = f"{pool.tokens:.0f} are left of {pool.tokens_limit} a minute"
        words[Kind.TOKENS] = f"pool {pool.name} has too few tokens: {left}"
    return words


def _paused(pause: Pause, now_ms: int) -> str:
    by = f" by {pause.by}" if pause.by else ""
    since = f" since {duration(now_ms - pause.at_ms)}" if pause.at_ms is not None else ""
    return f"paused{by}{since}: {pause.reason or 'no reason given'}"


def _no_worker(lost: Sequence[str]) -> str:
    return f"no live worker serves it; lost: {_names(lost)}" if lost else "no live worker serves it"


def _names(worker_ids: Sequence[str]) -> str:
    named, more = worker_ids[:_NAMED], len(worker_ids) - _NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")
