"""What each part learns of the settings."""

from typing import Any

import pytest

from settings.schema import Settings
from tasks.reading import ModelLimits
from tests.fakes import FakeClock, FakeInference
from worker.ledger_terms import PoolTerms
from worker.terms import lease_terms, ledger_terms, pool_terms, ports_of


def configured(**changes: Any) -> Settings:
    """Return the settings of a worker with these fields changed."""
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
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("max_deliveries", "max_attempts", "crashes_to_run_alone", "given_up_at"),
    [
        (5, 3, 2, 5),
        (100, 100, 2, 100),
        (3, 3, 2, 3),
        (2, 3, 1, 2),
        (1, 3, 1, 2),
        (5, 2, 1, 5),
        (5, 1, 1, 5),
        (1, 1, 1, 2),
    ],
)
def test_a_job_runs_alone_before_it_is_given_up(
    max_deliveries: int, max_attempts: int, crashes_to_run_alone: int, given_up_at: int
) -> None:
    """From two crashes on, or from fewer where fewer would be its end; so never before it has crashed alone."""
    settings = configured(max_deliveries=max_deliveries, retry={"max_attempts": max_attempts})
    inference = FakeInference()
    assert ledger_terms(settings).crashes_to_run_alone == crashes_to_run_alone
    assert ports_of(settings, inference, FakeClock(), lambda: 0.5).max_deliveries == given_up_at
    assert given_up_at > crashes_to_run_alone


def test_the_ledger_learns_what_it_is_told() -> None:
    """Seconds where they are times to live, milliseconds where a script compares."""
    terms = ledger_terms(
        configured(result_ttl_seconds=60, settled_ttl_seconds=600, max_job_bytes=4096, max_queue_seconds=1.5)
    )
    assert terms.worker_id == "triton-01"
    assert (terms.result_ttl_seconds, terms.settled_ttl_seconds) == (60, 600)
    assert (terms.max_job_bytes, terms.max_queue_ms) == (4096, 1500)


def test_without_a_bound_jobs_may_wait_for_ever() -> None:
    """As by default."""
    assert ledger_terms(configured()).max_queue_ms is None


def test_the_lease_learns_how_long_it_is() -> None:
    """And how long a ledger is kept that its reaper writes into: as long as all ledgers."""
    terms = lease_terms(configured(lease_seconds=3, settled_ttl_seconds=600))
    assert (terms.worker_id, terms.lease_seconds, terms.ledger_seconds) == ("triton-01", 3, 600)


def test_each_model_has_its_limits() -> None:
    """By public name; one that takes all parameters as one JSON takes any."""
    overrides = {"acme/model-2": {"max_prompt_bytes": 10, "max_tokens_limit": 5, "options": {"temperature": "t"}}}
    limits = ports_of(configured(models=overrides), FakeInference(), FakeClock(), lambda: 0.5).limits
    assert set(limits) == {"acme/model-1", "acme/model-2"}
    assert limits["acme/model-1"] == ModelLimits(1 << 20)
    assert limits["acme/model-2"] == ModelLimits(10, 5, frozenset({"temperature"}))
    any_of_them = {"acme/model-2": {"options_json_input": "options"}}
    limits = ports_of(configured(models=any_of_them), FakeInference(), FakeClock(), lambda: 0.5).limits
    assert limits["acme/model-2"] == ModelLimits(1 << 20, parameters=None)


def test_the_pool_learns_all_of_its_limits() -> None:
    """And whether it finds its own level."""
    limits = {"max_concurrency": 8, "requests_per_minute": 600, "tokens_per_minute": None, "adaptive": True}
    terms = pool_terms(configured(gpu_pool={"name": "gpu", "kept_slots": {"acme/model-1": 2}, **limits}))
    assert terms == PoolTerms("gpu", 8, 600, None, {"acme/model-1": 2}, adaptive=True)
    assert not pool_terms(configured()).adaptive
