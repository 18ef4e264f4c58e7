"""What a worker says of itself."""

import json

import pytest

from settings.schema import Settings
from tasks.errors import ErrorCode
from tests.fakes import FakeClock
from worker.clock import RedisClock
from worker.gate import ModelState, Standing
from worker.health import Load, Process, WorkerState, health_fields, worker_state
from worker.tally import Tally

STARTING, READY = ModelState(), ModelState(Standing.READY)
PAUSED = ModelState(Standing.PAUSED, ErrorCode.RUNTIME_UNAVAILABLE, 1, 1000.0)
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
        ([PAUSED], False, WorkerState.UNAVAILABLE),
        ([PAUSED, STARTING], False, WorkerState.UNAVAILABLE),
        ([STARTING], False, WorkerState.STARTING),
        ([STARTING, STARTING], False, WorkerState.STARTING),
        ([READY], True, WorkerState.DRAINING),
        ([PAUSED], True, WorkerState.DRAINING),
        ([STARTING], True, WorkerState.DRAINING),
    ],
)
def test_a_workers_state_follows_from_its_models(states: list[ModelState], draining: bool, state: WorkerState) -> None:
    """Degraded is some, unavailable is none; one that drains takes no jobs whatever its models."""
    assert worker_state({str(n): one for n, one in enumerate(states)}, draining=draining) is state


@pytest.mark.parametrize("states", [[READY], [READY, PAUSED], [PAUSED], [STARTING]])
def test_a_worker_that_consumes_nothing_is_unavailable(states: list[ModelState]) -> None:
    """Whatever its models could do; one that drains says that instead."""
    models = {str(n): one for n, one in enumerate(states)}
    assert worker_state(models, draining=False, consuming=False) is WorkerState.UNAVAILABLE
    assert worker_state(models, draining=True, consuming=False) is WorkerState.DRAINING


@pytest.fixture
def settings() -> Settings:
    """The settings of the contract's example."""
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
        }
    )


def fields(settings: Settings, tally: Tally | None = None) -> dict[str, str]:
    """Return the fields of a worker with one model of two out of order."""
    models = {"acme/model-1": READY, "acme/model-2": PAUSED}
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
    """With the reason of a pause."""
    assert json.loads(fields(settings)["models"]) == {
        "acme/model-1": {"state": "ready", "reason": None, "circuit": "closed", "in_flight": 2},
        "acme/model-2": {"state": "paused", "reason": "runtime_unavailable", "circuit": "closed", "in_flight": 0},
    }
