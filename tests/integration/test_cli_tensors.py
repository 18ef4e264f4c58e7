"""``speedinfer submit --tensors`` and what shows tensor results, against a real Valkey."""

import json
import threading
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from tasks.fingerprint import fingerprint
from tasks.tensor_result import read_result
from tasks.tensors import TensorJob
from tests.integration.command import lines, objects, run
from tests.jobs import MODEL
from tests.tensor_jobs import ECHO, full_tensor_content, tensor, tensor_content
from tests.waiting import wait_until
from worker.keys import Keys
from worker.submit import encode

KEYS: Final = Keys("speedinfer")
QUEUE: Final = KEYS.jobs(MODEL)
OUTPUTS: Final[list[dict[str, Any]]] = [
    {"name": "x", "datatype": "FP32", "shape": [1, 10], "parameters": {}, "data": [0.5, "NaN", *range(8)]},
    {"name": "t", "datatype": "BYTES", "shape": [1], "parameters": {"content_type": "base64"}, "data": ["/w=="]},
    {"name": "m", "datatype": "FP32", "shape": [1], "parameters": {"shared_memory_region": "r"}, "data": None},
    {"name": "u", "datatype": "BYTES", "shape": [2], "parameters": {}, "data": ["\x1b[31m", "y" * 50]},
]
SHOWN: Final = [
    'x FP32 [1, 10]: 0.5 "NaN" 0 1 2 3 4 5 … (10 values)',
    't BYTES [1]: "/w==" (base64)',
    "m FP32 [1]: in shared memory, r",
    f'u BYTES [2]: "\\\\u001b[31m" "{"y" * 38}…',
]


def result_json(job_id: str, **fields: Any) -> str:
    """A succeeded result of a tensor job, but for these fields."""
    content = {
        "version": 1,
        "job_id": job_id,
        "model": MODEL,
        "status": "succeeded",
        "outputs": OUTPUTS,
        "finish_reason": None,
        "usage": {"inferences": 1, "tokens": 12},
        "error": None,
        "worker_id": "w",
        "model_version": "3",
        "attempts": [],
        "timings": {"queued_ms": 1, "pool_wait_ms": 0, "inference_ms": 8},
        "finished_at": "2026-11-30T10:00:00.000Z",
        "tenant": None,
        "batch_id": None,
        "custom_id": None,
        "metadata": {},
        **fields,
    }
    return read_result(json.dumps(content)).model_dump_json()


def settle(client: redis.Redis, job: TensorJob, **fields: Any) -> None:
    """Write what the settlement of a job writes."""
    text = result_json(job.job_id, **fields)
    client.xadd(
        KEYS.settlements,
        {"job_id": job.job_id, "status": json.loads(text)["status"], "model": job.model, "result": text},
    )
    client.set(KEYS.result(job.job_id), text, ex=60)
    client.hset(KEYS.settled(job.job_id), "fingerprint", fingerprint(json.loads(encode(job))))
    client.expire(KEYS.settled(job.job_id), 60)


def settle_when_queued(client: redis.Redis, **fields: Any) -> threading.Thread:
    """Settle the one job that is going to be in the queue, as a worker would."""

    def work() -> None:
        wait_until(lambda: client.llen(QUEUE), description="the job is in its queue")
        raw: Any = client.lindex(QUEUE, 0)
        settle(client, TensorJob.model_validate_json(raw), **fields)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def queued(client: redis.Redis) -> dict[str, Any]:
    """The one job in the queue."""
    (raw,) = client.lrange(QUEUE, 0, -1)
    content: dict[str, Any] = json.loads(raw)
    return content


def file_of(folder: Path, content: Any) -> str:
    """A file that holds this."""
    path = folder / "request.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def request() -> dict[str, Any]:
    """What a file holds: the tensors alone."""
    return {name: full_tensor_content()[name] for name in ("inputs", "outputs", "inference_parameters")}


@pytest.mark.parametrize("by", ["file", "stdin"])
def test_a_tensor_job_is_put_into_its_models_queue(
    by: str, valkey: redis.Redis, redis_url: str, tmp_path: Path
) -> None:
    """As it stands in the file, but for what is at its default."""
    options = ("-m", MODEL, "--job-id", "t-1", "--tenant", "t", "--metadata", "a=b", "--redis-url", redis_url)
    if by == "file":
        result = run("submit", "--tensors", file_of(tmp_path, request()), *options)
    else:
        result = run("submit", "--tensors", "-", *options, stdin=json.dumps(request()))
    (said,) = objects(result)
    assert said == {"job_id": "t-1", "queue": QUEUE, "queue_length": 1}
    job = TensorJob.model_validate(queued(valkey))
    assert job.model_dump(exclude={"enqueued_at"}) == TensorJob.model_validate(
        {**request(), "job_id": "t-1", "model": MODEL, "tenant": "t", "metadata": {"a": "b"}}
    ).model_dump(exclude={"enqueued_at"})


def test_what_is_said_beside_a_whole_job_wins(valkey: redis.Redis, redis_url: str, tmp_path: Path) -> None:
    """A file may hold all of a job; an option replaces what it says."""
    whole = tensor_content(tenant="from the file", custom_id="c", job_id="from the file")
    run("submit", "--tensors", file_of(tmp_path, whole | {"job_id": "x"}), "--tenant", "t", "--redis-url", redis_url)
    job = queued(valkey)
    assert (job["job_id"], job["model"], job["tenant"], job["custom_id"]) == ("x", MODEL, "t", "c")


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("{", [], "is no JSON"),
        ('{"inputs":[{"data":[NaN]}]}', [], 'write "NaN"'),
        ('{"inputs":[{"data":[1e999]}]}', [], 'write "NaN"'),
        ([], [], "holds no tensor job"),
        ({"prompt": "x"}, [], "holds no tensor job"),
        ({"inputs": []}, [], "inputs: "),
        ({"inputs": [tensor("FP32", [1]) | {"shape": "x"}]}, [], "inputs.0.shape: "),
        ({"inputs": [tensor("FP32", None, [1])]}, [], "inputs.0: Value error, has no data"),
        (tensor_content(), ["Hello"], "has no prompt, no --max-tokens and no --param"),
        (tensor_content(), ["-n", "5"], "has no prompt, no --max-tokens and no --param"),
        (tensor_content(), ["-p", "a=1"], "has no prompt, no --max-tokens and no --param"),
    ],
)
def test_what_is_no_tensor_job_is_wrong_usage(
    content: Any, options: list[str], said: str, valkey: redis.Redis, redis_url: str, tmp_path: Path
) -> None:
    """One line says why, and nothing is enqueued."""
    file = file_of(tmp_path, content)
    result = run("submit", *options, "--tensors", file, "-m", MODEL, "--redis-url", redis_url)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not valkey.exists(QUEUE)


def test_a_file_that_is_not_there_is_wrong_usage(redis_url: str, tmp_path: Path) -> None:
    """It is named."""
    result = run("submit", "--tensors", str(tmp_path / "none"), "-m", MODEL, "--redis-url", redis_url)
    assert (result.exit_code, "none cannot be read: No such file" in result.stderr) == (2, True)


class TestWaiting:
    def test_people_see_the_outputs_and_what_they_cost(
        self, valkey: redis.Redis, redis_url: str, tmp_path: Path
    ) -> None:
        """A line each, which cannot drive the terminal; JSON has all values."""
        worker = settle_when_queued(valkey)
        command = ("submit", "--tensors", file_of(tmp_path, request()), "-m", MODEL, "--job-id", "t-1", "--wait")
        result = run(*command, "--timeout", "10", "--no-json", "--redis-url", redis_url)
        worker.join()
        assert lines(result) == SHOWN
        assert "1 inferences · 12 tokens · queued 1 ms · inference 8 ms" in result.stderr
        (content,) = objects(run(*command, "--timeout", "10", "--json", "--redis-url", redis_url))
        assert content == json.loads(result_json("t-1"))

    def test_a_failed_job_ends_with_1_and_its_code(self, valkey: redis.Redis, redis_url: str, tmp_path: Path) -> None:
        """As for texts."""
        error = {"code": "invalid_job", "message": "No.", "retryable": False, "upstream_status": None}
        worker = settle_when_queued(valkey, status="failed", outputs=None, usage=None, error=error)
        command = ("submit", "--tensors", file_of(tmp_path, request()), "-m", MODEL, "--wait", "--timeout", "10")
        result = run(*command, "--no-json", "--redis-url", redis_url)
        worker.join()
        assert (result.exit_code, "failed, invalid_job: No." in result.stderr) == (1, True)


def test_settlements_of_both_kinds_are_shown(valkey: redis.Redis, redis_url: str) -> None:
    """Units in the place of tokens, outputs in the place of a text."""
    settle(valkey, TensorJob.model_validate(tensor_content(job_id="t-1")))
    (row,) = [
        line for line in lines(run("settlements", "--no-json", "--text", "--redis-url", redis_url)) if "t-1" in line
    ]
    assert "1 inferences · 12 tokens" in row
    assert "x FP32 [1, 10]: 0.5" in row
    (entry,) = objects(run("settlements", "--json", "--redis-url", redis_url))
    assert entry["result"]["outputs"] == OUTPUTS


class TestChecking:
    def config(self, folder: Path, triton_url: str, redis_url: str, usage: dict[str, str]) -> str:
        """A configuration of one text model and one of tensors."""
        tree = {
            "worker_id": "w",
            "runtime_endpoint": triton_url,
            "redis_url": redis_url,
            "supported_models": ["acme/text", "acme/tensors"],
            "runtime_config": {"model_name": "text_generation"},
            "models": {"acme/tensors": {"model_name": ECHO, "kind": "tensors", "tensors": {"usage": usage}}},
        }
        return file_of(folder, tree)

    def test_a_tensor_model_that_fits_is_shown_with_its_tensors(
        self, triton_url: str, redis_url: str, tmp_path: Path
    ) -> None:
        """Beside a text model; nothing is probed of it, since only jobs know what to send."""
        config = self.config(tmp_path, triton_url, redis_url, {"values": "count"})
        shown = lines(run("check", "--probe", "--config", config, "--no-json"))
        assert f"acme/tensors -> {ECHO}, version 1, 3: fits" in shown
        assert any(line.split() == ["input", "IN_BF16", "BF16", "[1,-1]", "as", "jobs", "have", "it"] for line in shown)
        assert any(line.split() == ["output", "count", "INT32", "[1,1]", "tensors.usage.values"] for line in shown)
        rows = objects(run("models", "--config", config, "--json"))
        assert [(row["model"], row["ready"]) for row in rows] == [("acme/text", True), ("acme/tensors", True)]

    def test_a_unit_without_an_output_is_told_what_to_change(
        self, triton_url: str, redis_url: str, tmp_path: Path
    ) -> None:
        """Exit 1, as for a text model that does not fit."""
        config = self.config(tmp_path, triton_url, redis_url, {"values": "cont"})
        shown = lines(run("check", "--config", config, "--no-json"), 1)
        assert f"acme/tensors -> {ECHO}, version 1, 3: DOES NOT FIT" in shown
        assert "  tensors.usage.values = cont is none of its outputs: set tensors.usage.values to count" in shown
