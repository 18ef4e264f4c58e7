"""Every wrong answer that a real Triton sends: each job is settled with its code, and never with a made-up count."""

from collections.abc import Iterable

import pytest

from tasks.result import GenerateResult
from tests.acceptance.fleet import Client, Fleet, WorkerProcess, models
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import codes, push_jobs, result_of, wait_for_results
from tests.waiting import wait_until
from tests.witness import Witness

FAULTY = "acme/faulty"
SLOW = "acme/slow"


@pytest.fixture(scope="module")
def worker(standing_fleet: Fleet) -> WorkerProcess:
    """A worker of a model that does wrong what its prompt says, and of one that must answer within a second."""
    behind = models(
        faulty={"model_name": "faulty", "max_result_bytes": 4096},
        slow={"model_name": "text_generation", "timeout_seconds": 1},
    )
    return standing_fleet.start(**behind)


pytestmark = pytest.mark.usefixtures("worker")


def ask(client: Client, prompts: Iterable[str], model: str = FAULTY) -> dict[str, GenerateResult]:
    """Send a job for each prompt; return the results by prompt."""
    job_ids = {f"j-{n}": prompt for n, prompt in enumerate(prompts)}
    for job_id, prompt in job_ids.items():
        push_jobs(client, job_id, model=model, prompt=prompt, max_tokens=5)
    results = wait_for_results(client, *job_ids, timeout=30)
    return {job_ids[job_id]: result for job_id, result in results.items()}


COUNTS = ("prompt_tokens", "completion_tokens", "both")
NO_COUNTS = ("absent", "two", "none", "fp32", "fp64", "text", "bool", "negative", "negative-int64")
COUNT_FAULTS = (*(f"{count}:{kind} hello" for count in COUNTS for kind in NO_COUNTS), "prompt_tokens:zero", "both:zero")


def test_no_way_in_which_a_count_can_be_wrong_is_settled_as_a_count(valkey: Client, witness: Witness) -> None:
    """A count that is absent, not one value, no integer, negative, or 0 for the prompt: the job fails, and is run once."""
    results = ask(valkey, COUNT_FAULTS)

    assert dict(zip(results, codes(results.values()), strict=True)) == dict.fromkeys(
        COUNT_FAULTS, "runtime_usage_unavailable"
    )
    assert all((result.text, result.usage, result.status) == (None, None, "failed") for result in results.values())
    assert all([str(it.code) for it in result.attempts] == ["runtime_usage_unavailable"] for result in results.values())
    assert not any(result.error.retryable for result in results.values() if result.error)
    assert sorted(witness.prompts("faulty")) == sorted(COUNT_FAULTS)


def test_counts_that_are_right_are_settled_whatever_integers_the_model_sends(valkey: Client) -> None:
    """Any integer datatype will do, whatever the model declares; a completion of no tokens is one."""
    datatypes = ("int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64", "scalar", "flat")
    results = ask(valkey, (*(f"both:{datatype}" for datatype in datatypes), "completion_tokens:zero", "both:huge"))

    counted = {prompt: result.usage.model_dump() if result.usage else None for prompt, result in results.items()}
    usual = {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}
    assert counted == {
        **dict.fromkeys((f"both:{datatype}" for datatype in datatypes), usual),
        "completion_tokens:zero": {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1},
        "both:huge": {"prompt_tokens": 2**62, "completion_tokens": 2**62, "total_tokens": 2**63},
    }


def test_a_wrong_text_fails_the_job_and_what_it_spent_is_told(valkey: Client, witness: Witness) -> None:
    """No text, another type, not one value, or more bytes than allowed; the true usage of it is in the result."""
    faults = tuple(f"text_output:{kind}" for kind in ("absent", "two", "none", "int32", "fp32", "bytes=5000"))
    results = ask(valkey, faults)

    assert codes(results.values()) == ["runtime_output_invalid"] * len(faults)
    assert all(result.text is None for result in results.values())
    assert all(len(result.attempts) == 1 for result in results.values())
    assert sorted(witness.prompts("faulty")) == sorted(faults)


def test_a_text_that_is_odd_is_still_a_text(valkey: Client, worker: WorkerProcess) -> None:
    """An empty text is one; bytes that are no UTF-8 are replaced, and that is logged without the text."""
    results = ask(valkey, ("text_output:blank", "text_output:not-utf8", "text_output:nul", "text_output:flat"))

    assert [result.text for result in results.values()] == ["", "caf� �", "a\0b", "echo: text_output:flat"]
    assert "caf" not in worker.log.read_text()


def test_a_model_that_raises_is_asked_once_more_and_both_attempts_are_told(valkey: Client, witness: Witness) -> None:
    """One request's exception can reach its whole batch, so a job gets a second chance, and no third."""
    result = ask(valkey, ["raise hell"])["raise hell"]

    assert result.error is not None
    assert result.error.model_dump() == {
        "code": "triton_inference_failed",
        "message": "The model could not run this job.",
        "retryable": False,
        "upstream_status": 500,
    }
    assert [str(attempt.code) for attempt in result.attempts] == ["triton_inference_failed"] * 2
    assert witness.prompts("faulty") == ["raise hell"] * 2
    assert len({served.request_id for served in witness.served("faulty")}) == 2


def test_what_a_model_refuses_is_settled_by_the_status_that_triton_gives_it(valkey: Client, witness: Witness) -> None:
    """A rejection is final; what Triton calls an error of the model's own is tried once more."""
    attempts = {
        "INVALID_ARG": 1,
        "NOT_FOUND": 1,
        "ALREADY_EXISTS": 1,
        "UNSUPPORTED": 1,
        "CANCELLED": 1,
        "INTERNAL": 2,
        "UNKNOWN": 1,
    }
    results = ask(valkey, [f"error={name}" for name in attempts])

    assert codes(results.values()) == ["triton_inference_failed"] * len(attempts)
    assert {prompt: len(result.attempts) for prompt, result in results.items()} == {
        f"error={name}": count for name, count in attempts.items()
    }
    assert {f"error={name}": witness.prompts().count(f"error={name}") for name in attempts} == {
        f"error={name}": count for name, count in attempts.items()
    }


def test_an_answer_that_comes_too_late_is_a_timeout_and_is_not_asked_for_again(
    valkey: Client, witness: Witness, gate: Gate
) -> None:
    """After timeout_seconds the job is settled; the GPU may still be at it, so it is run once."""
    # The connection is there then: else a stalled worker may not have made it in time, which is no time-out of the job.
    push_jobs(valkey, "before", model=FAULTY, prompt="hello")
    result_of(valkey, "before")
    job = gate.prompt("too late")
    result = ask(valkey, [job], model=SLOW)[job]

    assert codes([result]) == ["runtime_timeout"]
    (attempt,) = result.attempts
    assert attempt.inference_ms is not None
    # It was not answered by then; that a machine stalls is in this time too.
    assert 950 <= attempt.inference_ms <= 5000
    (served,) = witness.served("text_generation")
    assert served.finished_at is None
    gate.open()
    wait_until(
        lambda: witness.served("text_generation")[0].finished_at is not None, description="Triton is done with it"
    )
    assert witness.prompts("text_generation") == [job]


def test_no_failure_of_a_model_keeps_the_worker_from_the_next_job(valkey: Client, worker: WorkerProcess) -> None:
    """After all of the above in one go the next good job succeeds, on the same process."""
    wrong = ask(valkey, ("raise", "both:absent", "text_output:absent", "error=INVALID_ARG"))
    push_jobs(valkey, "good", model=FAULTY, prompt="hello")

    assert codes([result_of(valkey, "good")]) == [None]
    assert None not in codes(wrong.values())
    assert int(worker.wait_until_state("ready")["pid"]) == worker.pid


def test_a_model_whose_process_died_fails_its_jobs_after_max_attempts_and_no_other_models_jobs(
    fleet: Fleet, valkey: Client, own_triton_url: str, own_witness: Witness
) -> None:
    """A job that kills its model is not sent for ever: max_attempts, then it is settled; other models go on."""
    worker = fleet.start(
        worker_id="crashed", runtime_endpoint=own_triton_url, **models(deadly="faulty", steady="text_generation")
    )
    push_jobs(valkey, "killer", model="acme/deadly", prompt="exit now")
    push_jobs(valkey, "bystander", model="acme/steady", prompt="hello")

    results = wait_for_results(valkey, "killer", "bystander", timeout=30)

    assert codes(results.values()) == ["runtime_model_crashed", None]
    assert [str(attempt.code) for attempt in results["killer"].attempts] == ["runtime_model_crashed"] * 3
    # Triton answers for a dead process without asking it, so the job reached the model once.
    assert own_witness.prompts("faulty") == ["exit now"]
    assert worker.process.poll() is None
