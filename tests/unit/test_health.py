"""What a worker says of itself."""

import json
from dataclasses import replace

import pytest

from settings.schema import Settings
from tasks.errors import ErrorCode
from tasks.reading import ModelLimits
from tasks.tensor_limits import TensorLimits
from tests.fakes import FakeClock
from worker.clock import RedisClock
from worker.gate import Cause, ModelState, Standing
from worker.health import (
    Load,
    ModelHealth,
    Outside,
    Process,
    WorkerState,
    able_models,
    declarations,
    health_fields,
    models_health,
    worker_state,
)
from worker.tally import Tally
from worker.vitals import Vitals

STARTING, READY = ModelHealth(Standing.STARTING), ModelHealth(Standing.READY)
PAUSED = ModelHealth(Standing.PAUSED, ErrorCode.RUNTIME_UNAVAILABLE, Cause.NOT_READY)
OPEN, HALF_OPEN = ModelHealth(Standing.READY, circuit="open"), ModelHealth(Standing.READY, circuit="half_open")
IS_READY = ModelState(Standing.READY)
PROCESS = Process("0.1.0", "d" * 16, "host-1", 42, "2026-11-30T09:00:00.000Z")
LOAD = Load(in_flight=3, slots=32, at="2026-11-30T10:00:00.000Z", draining=False, by_model={"acme/model-1": 2})
CONTRACT = {
    *(
        "state",
        "circuit",
        "consecutive_failures",
        "succeeded_total",
        "failed_total",
        "last_error_code",
        "last_error_at",
    ),
    *("last_success_at", "in_flight", "concurrency", "pool", "pool_max_concurrency", "models", "endpoint_id"),
    *("runtime_endpoint", "worker_type", "runtime", "version", "config_digest", "hostname", "pid", "started_at"),
    "heartbeat_at",
}


@pytest.mark.parametrize(
    ("states", "draining", "state"),
    [
        ([READY], False, WorkerState.READY),
        ([READY, READY], False, WorkerState.READY),
        ([READY, PAUSED], False, WorkerState.DEGRADED),
        ([READY, STARTING], False, WorkerState.DEGRADED),
        ([READY, STARTING, PAUSED], False, WorkerState.DEGRADED),
        ([READY, OPEN], False, WorkerState.DEGRADED),
        ([READY, HALF_OPEN], False, WorkerState.READY),
        ([OPEN], False, WorkerState.UNAVAILABLE),
        ([OPEN, PAUSED], False, WorkerState.UNAVAILABLE),
        ([PAUSED], False, WorkerState.UNAVAILABLE),
        ([PAUSED, STARTING], False, WorkerState.UNAVAILABLE),
        ([STARTING], False, WorkerState.STARTING),
        ([STARTING, STARTING], False, WorkerState.STARTING),
        ([READY], True, WorkerState.DRAINING),
        ([PAUSED], True, WorkerState.DRAINING),
        ([STARTING], True, WorkerState.DRAINING),
    ],
)
def test_a_workers_state_follows_from_its_models(states: list[ModelHealth], draining: bool, state: WorkerState) -> None:
    """Degraded is some, unavailable is none; one that drains takes no jobs whatever its models."""
    assert worker_state({str(n): one for n, one in enumerate(states)}, draining=draining) is state


@pytest.mark.parametrize("states", [[READY], [READY, PAUSED], [PAUSED], [STARTING]])
def test_a_worker_that_consumes_nothing_is_unavailable(states: list[ModelHealth]) -> None:
    """Whatever its models could do; one that drains says that instead."""
    models = {str(n): one for n, one in enumerate(states)}
    assert worker_state(models, draining=False, consuming=False) is WorkerState.UNAVAILABLE
    assert worker_state(models, draining=True, consuming=False) is WorkerState.DRAINING


def test_a_half_open_circuit_takes_jobs_and_an_open_one_does_not() -> None:
    """Jobs are what closes a half-open one, so routing has to send some."""
    models = {"ready": READY, "half": HALF_OPEN, "open": OPEN, "paused": PAUSED, "starting": STARTING}
    assert able_models(models, LOAD) == {"ready", "half"}


@pytest.mark.parametrize("load", [replace(LOAD, draining=True), replace(LOAD, consuming=False)])
def test_who_takes_no_jobs_is_able_to_run_nothing(load: Load) -> None:
    """Whatever its models could do."""
    assert able_models({"ready": READY}, load) == frozenset()


def test_a_models_health_is_all_that_is_said_of_it() -> None:
    """By the gate, the circuit, the last claim and the operator, whose word comes before the gate's."""
    gate = {"a": IS_READY, "b": ModelState(Standing.PAUSED, ErrorCode.RUNTIME_UNAVAILABLE, 1, 1.0, Cause.QUEUE_FULL)}
    alone = models_health(gate, Outside(), {"a": 2})
    assert alone["a"] == ModelHealth(Standing.READY, in_flight=2)
    assert alone["b"] == ModelHealth(Standing.PAUSED, "runtime_unavailable", "queue_full")
    outside = Outside({"a": "open"}, {"a": "circuit", "b": "slots"}, {"b"})
    told = models_health(gate, outside, {})
    assert told["a"] == ModelHealth(Standing.READY, circuit="open", waits="circuit")
    assert told["b"] == ModelHealth(Standing.PAUSED, "operator", waits="slots")


@pytest.fixture
def settings() -> Settings:
    """The settings of the contract's example, with a second model that pins its version."""
    return Settings.model_validate(
        {
            "worker_id": "triton-01",
            "worker_type": "nvidia-gpu",
            "runtime": "triton",
            "runtime_endpoint": "http://triton:8000",
            "supported_models": ["acme/model-1", "acme/model-2"],
            "runtime_config": {
                "model_name": "text_generation",
                "input_name": "text_input",
                "max_tokens_input_name": "max_tokens",
                "output_name": "text_output",
                "prompt_tokens_output_name": "prompt_tokens",
                "completion_tokens_output_name": "completion_tokens",
            },
            "models": {"acme/model-2": {"model_version": "3"}},
        }
    )


def fields(settings: Settings, tally: Tally | None = None) -> dict[str, str]:
    """Return the fields of a worker with one model of two out of order."""
    model = ModelHealth(Standing.READY, circuit="half_open", in_flight=2, waits="slots")
    models = {"acme/model-1": model, "acme/model-2": PAUSED}
    return health_fields(settings, PROCESS, tally or Tally(RedisClock(FakeClock())), models, LOAD)


def test_every_field_of_the_contract_is_there(settings: Settings) -> None:
    """From the first beat on; a hash holds strings, so what is not known is an empty one."""
    found = fields(settings)
    assert set(found) >= CONTRACT
    assert all(isinstance(value, str) for value in found.values())
    assert (found["last_error_code"], found["last_error_at"], found["last_success_at"]) == ("", "", "")


def test_it_says_what_is_so(settings: Settings) -> None:
    """Of the process, its load and its configuration."""
    wanted = {
        "state": "degraded",
        "in_flight": "3",
        "concurrency": "32",
        "pool": "triton:8000",
        "pool_max_concurrency": "32",
        "endpoint_id": "triton:8000",
        "worker_type": "nvidia-gpu",
        "runtime": "triton",
        "version": "0.1.0",
        "hostname": "host-1",
        "pid": "42",
        "started_at": "2026-11-30T09:00:00.000Z",
        "heartbeat_at": "2026-11-30T10:00:00.000Z",
    }
    assert fields(settings).items() >= wanted.items()


def test_it_says_what_was_counted(settings: Settings) -> None:
    """Each counter under its own name."""
    tally = Tally(RedisClock(FakeClock()), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ErrorCode.RUNTIME_TIMEOUT, "then", "before")
    wanted = {
        "succeeded_total": "1",
        "failed_total": "2",
        "retried_total": "3",
        "returned_total": "4",
        "dead_lettered_total": "5",
        "duplicates_total": "6",
        "claims_lost_total": "7",
        "claims_reaped_total": "8",
        "wasted_tokens_total": "9",
        "consecutive_failures": "10",
        "last_error_code": "runtime_timeout",
        "last_error_at": "then",
        "last_success_at": "before",
    }
    assert fields(settings, tally).items() >= wanted.items()


def test_it_says_how_each_model_stands(settings: Settings) -> None:
    """With the reason of a pause, the Triton model that its circuit is of, and the version that is pinned."""
    assert json.loads(fields(settings)["models"]) == {
        "acme/model-1": {
            "state": "ready",
            "reason": None,
            "cause": None,
            "circuit": "half_open",
            "in_flight": 2,
            "waits": "slots",
            "triton_model": "text_generation",
            "triton_version": None,
        },
        "acme/model-2": {
            "state": "paused",
            "reason": "runtime_unavailable",
            "cause": "not_ready",
            "circuit": "closed",
            "in_flight": 0,
            "waits": None,
            "triton_model": "text_generation",
            "triton_version": "3",
        },
    }


@pytest.mark.parametrize(
    ("circuits", "worst"), [((), "closed"), (("half_open", "closed"), "half_open"), (("half_open", "open"), "open")]
)
def test_its_circuit_is_the_worst_of_its_models(settings: Settings, circuits: tuple[str, ...], worst: str) -> None:
    """Open is worse than half open."""
    names = zip(settings.supported_models, circuits, strict=False)
    models = {name: ModelHealth(Standing.READY, circuit=circuit) for name, circuit in names}
    assert health_fields(settings, PROCESS, Tally(RedisClock(FakeClock())), models, LOAD)["circuit"] == worst


def test_limits_of_the_pool_are_those_it_is_configured_with(settings: Settings) -> None:
    """Empty where they are off: other workers of the pool may say otherwise, and status compares."""
    found = fields(settings)
    names = ("pool_requests_per_minute", "pool_tokens_per_minute", "pool_adaptive")
    assert [found[name] for name in names] == ["", "", "0"]


def test_a_declaration_is_what_the_worker_checks_jobs_by(settings: Settings) -> None:
    """The names of parameters in order, so that equal ones are equal texts; null where any will do."""
    limits = {
        "acme/model-1": ModelLimits(max_prompt_bytes=10, max_tokens_limit=5, parameters=frozenset({"top_p", "seed"})),
        "acme/model-2": ModelLimits(max_prompt_bytes=20, parameters=None),
    }
    found = {name: json.loads(text + "}") for name, text in declarations(settings, limits).items()}
    assert found == {
        "acme/model-1": {
            "kind": "text",
            "max_tokens_limit": 5,
            "max_prompt_bytes": 10,
            "max_input_bytes": None,
            "parameters": ["seed", "top_p"],
            "chat_template": None,
            "settled_ttl_seconds": 604_800,
        },
        "acme/model-2": {
            "kind": "text",
            "max_tokens_limit": None,
            "max_prompt_bytes": 20,
            "max_input_bytes": None,
            "parameters": None,
            "chat_template": None,
            "settled_ttl_seconds": 604_800,
        },
    }


def test_a_declaration_of_tensors_says_what_its_jobs_are_checked_by() -> None:
    """No parameter is allowed but those that are named."""
    settings = Settings.model_validate(
        {
            "worker_id": "triton-01",
            "runtime_endpoint": "http://triton:8000",
            "supported_models": ["acme/tensors"],
            "runtime_config": {"model_name": "echo", "kind": "tensors"},
        }
    )
    (declared,) = declarations(settings, {"acme/tensors": TensorLimits(5, frozenset({"mode", "a"}))}).values()
    assert json.loads(declared + "}") == {
        "kind": "tensors",
        "max_tokens_limit": None,
        "max_prompt_bytes": None,
        "max_input_bytes": 5,
        "parameters": ["a", "mode"],
        "chat_template": None,
        "settled_ttl_seconds": 604_800,
    }


def test_a_declaration_has_the_chat_template() -> None:
    """Whoever takes chat messages needs it, and may have no worker's configuration at hand."""
    runtime_config = {
        "model_name": "text_generation",
        "output_name": "text_output",
        "prompt_tokens_output_name": "prompt_tokens",
        "completion_tokens_output_name": "completion_tokens",
        "chat_template": "{{ messages }}",
    }
    settings = Settings.model_validate(
        {
            "worker_id": "triton-01",
            "runtime_endpoint": "http://triton:8000",
            "supported_models": ["acme/chat"],
            "runtime_config": runtime_config,
        }
    )
    (declared,) = declarations(settings, {"acme/chat": ModelLimits(max_prompt_bytes=10)}).values()
    assert json.loads(declared + "}")["chat_template"] == "{{ messages }}"


def test_a_beat_gathers_what_the_parts_say(settings: Settings) -> None:
    """And what a part has nothing to say of is in order."""
    gate = dict.fromkeys(settings.supported_models, IS_READY)
    tally = Tally(RedisClock(FakeClock()))
    beat = Vitals(settings, PROCESS, tally, lambda: gate, lambda: LOAD).beat()
    assert (beat.fields["state"], sorted(beat.able)) == ("ready", ["acme/model-1", "acme/model-2"])
    paused = Vitals(settings, PROCESS, tally, lambda: gate, lambda: LOAD, lambda: {"acme/model-1"}).beat()
    assert (paused.fields["state"], sorted(paused.able)) == ("degraded", ["acme/model-2"])
    others = Vitals(
        settings,
        PROCESS,
        tally,
        lambda: gate,
        lambda: LOAD,
        circuits=lambda: {"acme/model-2": "open"},
        refusals=lambda: {"acme/model-1": "tokens"},
    ).beat()
    assert (others.fields["circuit"], sorted(others.able)) == ("open", ["acme/model-1"])
    assert json.loads(others.fields["models"])["acme/model-1"]["waits"] == "tokens"
