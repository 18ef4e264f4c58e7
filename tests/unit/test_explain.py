"""Why jobs of a model wait, in words: what keeps every worker of it from taking them."""

from typing import Any

import pytest

from worker.explain import Kind, Reason, why
from worker.fleet_views import CircuitView, ModelView, Pause, Runner
from worker.pool_use import PoolUse

NOW_MS = 1_000_000
POOL = PoolUse("gpu-a", slots=1, slots_limit=3, requests=5, requests_limit=600, tokens=900.0, tokens_limit=6000)
CIRCUIT = CircuitView("triton:8000", "text_generation")
OPEN = CircuitView(
    "triton:8000", "text_generation", "open", "runtime_timeout", 5, opened_ms=NOW_MS - 3000, retry_ms=NOW_MS + 7000
)


def runner(worker_id: str = "w-1", **changes: Any) -> Runner:
    """Return a worker that takes jobs of the model, with these changes."""
    fields: dict[str, Any] = {
        "worker_id": worker_id,
        "state": "ready",
        "in_flight": 1,
        "concurrency": 4,
        "runtime_endpoint": "http://triton:8000",
        "pool": POOL,
        "circuit": CIRCUIT,
    }
    return Runner(**fields | changes)


def paused(reason: str, cause: str | None = None) -> dict[str, Any]:
    """Return what is changed in a worker that paused the model by itself."""
    return {"state": "unavailable", "standing": "paused", "reason": reason, "cause": cause}


def reason_of(*runners: Runner, queued: int = 3) -> Reason:
    """Return why three jobs wait for these workers."""
    return why(ModelView("acme/model-1", queued, runners=runners), NOW_MS)


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"state": "draining"}, Kind.DRAINED, "draining, since it was told to stop (w-1)"),
        (
            {"state": "starting", "standing": "starting"},
            Kind.STARTING,
            "starting: Triton at http://triton:8000 has not answered for this model yet (w-1)",
        ),
        (
            paused("runtime_unavailable", "not_ready"),
            Kind.NOT_READY,
            "Triton at http://triton:8000 has text_generation not ready: it is not loaded, or is loading (w-1)",
        ),
        (
            paused("runtime_unavailable", "not_ready") | {"triton_version": "9"},
            Kind.NOT_READY,
            "Triton at http://triton:8000 has version 9 of text_generation not ready: it is not loaded, or is loading (w-1)",
        ),
        (
            paused("runtime_unavailable", "queue_full"),
            Kind.QUEUE_FULL,
            "Triton's own queue of text_generation at http://triton:8000 is full (w-1)",
        ),
        (
            paused("runtime_unavailable"),
            Kind.UNAVAILABLE,
            "Triton at http://triton:8000 is away: it cannot be reached, or refuses (w-1)",
        ),
        (
            paused("runtime_contract_mismatch"),
            Kind.MISMATCH,
            "text_generation at http://triton:8000 does not fit the configuration: speedinfer check shows both sides (w-1)",
        ),
        (
            paused("runtime_model_crashed"),
            Kind.OUT_OF_ORDER,
            "text_generation at http://triton:8000 is out of order: runtime_model_crashed (w-1)",
        ),
        (paused("operator"), Kind.PAUSED, "was resumed, and hears of that with its next heartbeat (w-1)"),
        (
            {"state": "unavailable", "circuit": OPEN},
            Kind.CIRCUIT,
            "the circuit of text_generation at triton:8000 is open since 3.0 s: runtime_timeout (5 failures); tried again in 7.0 s (w-1)",
        ),
        (
            {"waits": "probes", "circuit": CircuitView("triton:8000", "text_generation", "half_open")},
            Kind.PROBES,
            "the circuit of text_generation is half open, and its probes run (w-1)",
        ),
        (
            {"state": "unavailable"},
            Kind.STANDS_STILL,
            "has claimed nothing for a while, though it could: see its log (w-1)",
        ),
        (
            {"pool": PoolUse("gpu-a", slots=3, slots_limit=3)},
            Kind.SLOTS,
            "pool gpu-a has no slot for it: 3 of 3 are taken (w-1)",
        ),
        (
            {"waits": "slots"},
            Kind.SLOTS,
            "pool gpu-a has no slot for it: 1 of 3 are taken, and the rest is kept for other models (w-1)",
        ),
        (
            {"in_flight": 4},
            Kind.SLOTS,
            "has 4 jobs in hand, as many as its concurrency lets it (w-1)",
        ),
        (
            {"pool": PoolUse("gpu-a", requests=600, requests_limit=600)},
            Kind.REQUESTS,
            "pool gpu-a has granted 600 of 600 requests in the last 60 s (w-1)",
        ),
        (
            {"waits": "tokens"},
            Kind.TOKENS,
            "pool gpu-a has too few tokens: 900 are left of 6000 a minute (w-1)",
        ),
        (
            {"pool": PoolUse("gpu-a", tokens=-120.4, tokens_limit=6000)},
            Kind.TOKENS,
            "pool gpu-a has too few tokens: -120 are left of 6000 a minute (w-1)",
        ),
        ({"waits": "turn"}, Kind.TURN, "it is the turn of other workers of pool gpu-a (w-1)"),
    ],
)  # fmt: skip
def test_what_is_in_the_way_of_a_worker_is_said(changes: dict[str, Any], kind: Kind, words: str) -> None:
    """With what an operator needs to mend it."""
    assert reason_of(runner(**changes)) == Reason(kind, words)


@pytest.mark.parametrize("waits", ["requests", "circuit", "paused", "something_new"])
def test_what_a_claim_was_refused_for_and_is_so_no_more_is_not_said(waits: str) -> None:
    """The limit is off now, the circuit closed, the model resumed; and what is not known is not made up."""
    assert reason_of(runner(waits=waits, pool=PoolUse("gpu-a"))) == Reason(Kind.SERVED)


def test_a_pause_is_said_with_who_did_it_and_why() -> None:
    """Whatever else is so; a name that was added by hand has neither."""
    pause = Pause("maintenance", "ops@host", NOW_MS - 180_000)
    view = ModelView("m", 3, runners=[runner(circuit=OPEN)], pause=pause)
    assert why(view, NOW_MS) == Reason(Kind.PAUSED, "paused by ops@host since 3 min: maintenance")
    assert why(ModelView("m", pause=Pause()), NOW_MS).words == "paused: no reason given"


def test_a_model_of_no_live_worker_is_said_so() -> None:
    """With workers of the fleet that were lost: one of them may have been its."""
    assert why(ModelView("m", 3), NOW_MS) == Reason(Kind.NO_WORKER, "no live worker serves it")
    lost = why(ModelView("m", 3, lost=["a", "b", "c", "d", "e"]), NOW_MS)
    assert lost.words == "no live worker serves it; lost: a, b, c and 2 more"


def test_a_redis_without_writes_comes_before_all_else() -> None:
    """Workers cannot say that they live then, so that none is seen says nothing."""
    words = "Redis takes no writes: it is full"
    for view in (ModelView("m", 3), ModelView("m", 3, pause=Pause()), ModelView("m", 3, runners=[runner()])):
        assert why(view, NOW_MS, "it is full") == Reason(Kind.NO_WRITES, words)


def test_a_forced_circuit_says_by_whom() -> None:
    """And nothing of a time: it stays so until it is told otherwise."""
    forced = CircuitView("triton:8000", "text_generation", "open", "new driver", is_forced=True, forced_by="ops@host")
    assert reason_of(runner(circuit=forced)).words == (
        "the circuit of text_generation at triton:8000 is forced open by ops@host: new driver (w-1)"
    )


@pytest.mark.parametrize(
    ("reason", "cause", "found"),
    [
        ("runtime_unavailable", None, "; Triton at http://triton:8000 is away: it cannot be reached, or refuses (w-1)"),
        ("runtime_unavailable", "not_ready", "not ready: it is not loaded, or is loading (w-1)"),
        ("runtime_timeout", None, "tried again in 7.0 s (w-1)"),
    ],
)
def test_with_an_open_circuit_stands_what_looks_find(reason: str, cause: str | None, found: str) -> None:
    """That is what is to be mended; what opened the circuit is said once."""
    said = reason_of(runner(circuit=OPEN, **paused(reason, cause)))
    assert said.kind is Kind.CIRCUIT
    assert said.words.startswith("the circuit of text_generation at triton:8000 is open since 3.0 s")
    assert said.words.endswith(found)


def test_an_open_circuit_whose_time_is_over_waits_for_a_look() -> None:
    """Real jobs come only after the model was looked at."""
    over = CircuitView("triton:8000", "text_generation", "open", "runtime_unavailable", 5, retry_ms=NOW_MS - 1)
    assert reason_of(runner(circuit=over)).words == (
        "the circuit of text_generation at triton:8000 is open: runtime_unavailable (5 failures); "
        "tried again when a look at the model passes (w-1)"
    )


@pytest.mark.parametrize("circuit", [CIRCUIT, CircuitView("triton:8000", "text_generation", "half_open")])
def test_a_worker_with_nothing_in_its_way_serves(circuit: CircuitView) -> None:
    """Whatever the others cannot; a half-open circuit lets jobs through."""
    assert reason_of(runner(circuit=circuit), runner("w-2", circuit=OPEN)) == Reason(Kind.SERVED)


def test_where_nothing_waits_load_is_in_nobodys_way() -> None:
    """It passes by itself; what has to be mended is said before a job comes."""
    full = runner(pool=PoolUse("gpu-a", slots=3, slots_limit=3), model_in_flight=0)
    assert reason_of(full, queued=0) == Reason(Kind.EMPTY)
    assert reason_of(full, runner(model_in_flight=2, in_flight=4), queued=0) == Reason(Kind.SERVED)
    assert reason_of(runner(circuit=OPEN), queued=0).kind is Kind.CIRCUIT
    assert not reason_of(full, queued=0).waits
    assert reason_of(full).waits


def test_workers_with_the_same_in_their_way_are_named_together() -> None:
    """Three of them; what is nearest to being served comes first, and gives the kind."""
    drained = [runner(f"d-{n}", state="draining") for n in range(5)]
    reason = reason_of(*drained, runner("w", circuit=OPEN))
    assert reason.kind is Kind.CIRCUIT
    first, second = reason.words.rsplit("; ", 1)
    assert first.endswith("(w)")
    assert second == "draining, since it was told to stop (d-0, d-1, d-2 and 2 more)"


def test_of_many_reasons_three_are_said() -> None:
    """Each worker may have a Triton of its own that is away."""
    runners = [runner(f"w-{n}", runtime_endpoint=f"http://{n}", **paused("runtime_unavailable")) for n in range(5)]
    words = reason_of(*runners).words
    assert words.count("is away") == 3
    assert words.endswith("; and 2 more reasons")
