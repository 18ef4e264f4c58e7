"""``speedinfer check``: one real inference, a configuration for a model not seen before, and presets written out."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from settings.load import settings_from
from settings.runtime import RuntimeConfig
from tasks.errors import QueueFull
from tasks.generate import Generation
from tests.conftest import MODELS
from tests.inferences import infer, inference_on
from tests.integration.command import lines, objects, run
from tests.integration.conftest import LOOKALIKES
from tests.jobs import MODEL
from tests.waiting import wait_until
from worker.cli.probing import probe
from worker.sandbox.triton_server import TritonServer
from worker.triton.suggesting import suggest

Configure = Callable[..., str]


@pytest.fixture
def configure(tmp_path: Path, redis_url: str, lookalikes: TritonServer) -> Configure:
    """Write a configuration of the look-alikes: public name to fields; return its file's name."""

    def write(**models: dict[str, Any]) -> str:
        content = {
            "worker_id": "triton-01",
            "runtime_endpoint": lookalikes.url,
            "redis_url": redis_url,
            "supported_models": list(models),
            "runtime_config": {"model_name": "unused"},
            "models": models,
        }
        file = tmp_path / "worker.json"
        file.write_text(json.dumps(content))
        return str(file)

    return write


class TestProbe:
    def test_each_model_is_run_once(self, valkey: redis.Redis, configure: Configure) -> None:
        """Text, counts, finish reason, version and time of one real inference; nothing is written to Redis."""
        config = configure(
            vllm={"model_name": "vllm_model", "preset": "vllm"},
            one={"model_name": "versions", "model_version": "1"},
        )
        (found,) = objects(run("check", "--probe", "--config", config))
        vllm, one = (model["probe"] for model in found["models"])
        assert vllm.pop("inference_ms") >= 0
        assert vllm == {
            "ok": True,
            "text": " word" * 16,
            "finish_reason": "length",
            "prompt_tokens": 2,
            "completion_tokens": 16,
            "model_version": "1",
            "usage": None,
            "outputs": [],
            "warnings": [],
            "code": None,
            "reason": None,
        }
        assert one["text"] == "version 1"
        shown = run("check", "--probe", "--prompt", "a b c", "--no-json", "--config", config).stdout
        assert "probe: 3 prompt + 16 completion tokens in " in shown
        assert 'text: " word word' in shown
        assert valkey.dbsize() == 0

    def test_without_it_nothing_is_run(self, valkey: redis.Redis, configure: Configure) -> None:  # noqa: ARG002 - has to be there
        """A check costs no GPU."""
        (found,) = objects(run("check", "--config", configure(raises={"model_name": "counts_flat"})))
        assert found["models"][0]["probe"] is None

    def test_an_inference_that_fails_ends_with_1(self, valkey: redis.Redis, configure: Configure) -> None:  # noqa: ARG002 - has to be there
        """The code is shown with what it was; Triton's own words are not."""
        config = configure(counts={"model_name": "counts_flat"})
        result = run("check", "--probe", "--prompt", "raise canary", "--no-json", "--config", config)
        assert result.exit_code == 1
        assert "FAILED after " in result.stdout
        assert "triton_inference_failed (HTTP 500: model exception)" in result.stdout
        assert "canary" not in result.output
        (found,) = objects(run("check", "--probe", "--prompt", "count:text x", "--config", config), exit_code=1)
        assert found["models"][0]["probe"]["code"] == "runtime_usage_unavailable"

    def test_what_would_be_billed_wrongly_is_warned_of(self, valkey: redis.Redis, configure: Configure) -> None:  # noqa: ARG002 - has to be there
        """The prompt in the text and in its count shows; the check had doubted it. Only --strict makes either a failure."""
        fields = {"model_name": "ensemble", "preset": "tensorrt_llm", "constants": {"exclude_input_in_output": None}}
        config = configure(trt=fields)
        (found,) = objects(run("check", "--probe", "--config", config))
        (model,) = found["models"]
        begins, counts = model["probe"]["warnings"]
        assert begins.startswith("the text begins with the prompt")
        assert counts.startswith("18 completion tokens for max_tokens 16")
        (doubt,) = [each for each in model["comparisons"] if each["is_doubt"]]
        assert doubt["remedy"] == 'add "exclude_input_in_output": true to constants'
        assert run("check", "--strict", "--config", config).exit_code == 1

    def test_a_model_of_tensors_is_run_with_zeros(
        self,
        valkey: redis.Redis,  # noqa: ARG002 - has to be there
        triton_url: str,
        redis_url: str,
        tmp_path: Path,
    ) -> None:
        """Usage in its units, outputs with their datatypes and shapes; the table says which one it is billed by."""
        file = tmp_path / "worker.json"
        tensors = {"kind": "tensors", "tensors": {"usage": {"tokens": "count"}}}
        content = {
            "worker_id": "triton-01",
            "runtime_endpoint": triton_url,
            "redis_url": redis_url,
            "supported_models": ["echo"],
            "runtime_config": {"model_name": "tensor_echo", **tensors},
        }
        file.write_text(json.dumps(content))
        (found,) = objects(run("check", "--probe", "--config", str(file)))
        (model,) = found["models"]
        assert set(model["probe"]["usage"]) == {"inferences", "tokens"}
        assert "OUT_BOOL BOOL [1,1]" in model["probe"]["outputs"]
        shown = lines(run("check", "--probe", "--no-json", "--config", str(file)))
        assert ["output", "count", "INT32", "[1,1]", "tensors.usage.tokens"] in [line.split() for line in shown]
        assert any(line.startswith("  probe: 1 inferences, ") for line in shown)

    def test_a_missing_version_says_which_there_are(self, valkey: redis.Redis, configure: Configure) -> None:  # noqa: ARG002 - has to be there
        """It is not ready, and may be loaded yet."""
        config = configure(v9={"model_name": "versions", "model_version": "9"})
        (found,) = objects(run("check", "--config", config), exit_code=1)
        (model,) = found["models"]
        assert model["verdict"] == "not_ready"
        assert model["hint"].startswith("version 9 is not loaded; loaded: 1, 2")


class TestExplain:
    def test_a_preset_is_written_out(self, tmp_path: Path) -> None:
        """As fields that mean the same without it; nothing is connected to."""
        file = tmp_path / "worker.json"
        content = {
            "worker_id": "w",
            "runtime_endpoint": "http://127.0.0.1:1",
            "supported_models": ["a", "b"],
            "runtime_config": {"model_name": "vllm_model", "preset": "vllm", "timeout_seconds": 9},
            "models": {"b": {"preset": "tensorrt_llm", "model_name": "ensemble", "options": {"min_tokens": None}}},
        }
        file.write_text(json.dumps(content))
        told = {each["model"]: each["runtime_config"] for each in objects(run("check", "--explain", "-c", str(file)))}
        assert "preset" not in told["a"]
        assert told["a"]["options_json_input"] == "sampling_parameters"
        assert (told["b"]["model_name"], told["b"]["timeout_seconds"]) == ("ensemble", 9)
        assert "min_tokens" not in told["b"]["options"]
        settings = settings_from(content)
        for name, fields in told.items():
            plain = settings_from({**content, "runtime_config": fields, "models": {}})
            expected = settings.runtime_for(name).model_dump(exclude={"preset"})
            assert plain.runtime_config.model_dump(exclude={"preset"}) == expected
        shown = run("check", "--explain", "--no-json", "--config", str(file)).stdout
        assert json.loads(shown) == told


WITHOUT_COUNTS: Final = ("llmapi", "huggingface", "mock_llm")
SILENT: Final = "silent"
HASTY_QUEUE: Final = "queue_timeout"


def models_in(folder: Path) -> list[str]:
    """The models of a repository."""
    return sorted(path.parent.name for path in folder.glob("*/config.pbtxt"))


class TestSuggest:
    @pytest.mark.parametrize("model_name", [m for m in models_in(LOOKALIKES) if m not in WITHOUT_COUNTS])
    def test_every_lookalike_that_counts_runs_with_what_is_suggested(
        self, lookalikes: TritonServer, model_name: str
    ) -> None:
        """Without a word of configuration beside it."""
        runs_as_suggested(lookalikes.url, model_name)

    @pytest.mark.parametrize("model_name", [m for m in models_in(MODELS) if m != SILENT])
    def test_every_model_of_the_test_bed_runs_with_what_is_suggested(self, triton_url: str, model_name: str) -> None:
        """Those of other names too, and those that take tensors as such."""
        runs_as_suggested(triton_url, model_name)

    @pytest.mark.parametrize("model_name", WITHOUT_COUNTS)
    def test_a_model_that_counts_nothing_is_told_so(self, lookalikes: TritonServer, model_name: str) -> None:
        """Plainly, with what it would need; the exit code is 1."""
        result = run("check", "--suggest", model_name, "--endpoint", lookalikes.url)
        (found,) = objects(result, exit_code=1)
        assert not found["works"]
        assert found["missing"][0].startswith("it reports no token count of the prompt and none of the completion")

    def test_a_suggestion_can_be_put_into_a_file(self, lookalikes: TritonServer) -> None:
        """The output proper is that alone; what else is to be said stands beside it."""
        result = run("check", "--suggest", "ensemble", "--endpoint", lookalikes.url, "--probe", "--no-json")
        assert json.loads("\n".join(lines(result))) == {
            "runtime_config": {"model_name": "ensemble", "preset": "tensorrt_llm"}
        }
        assert "note: it has the tensors of the preset tensorrt_llm" in result.stderr
        assert "probe: 2 prompt + 16 completion tokens" in result.stderr

    def test_a_configuration_says_how_to_reach_triton(self, configure: Configure) -> None:
        """Its endpoint, headers and certificates are used for the model that it does not have."""
        config = configure(known={"model_name": "versions"})
        (found,) = objects(run("check", "--suggest", "vllm_model", "--config", config, "--probe"))
        assert found["runtime_config"] == {"model_name": "vllm_model", "preset": "vllm"}
        assert found["probe"]["completion_tokens"] == 16

    def test_a_model_that_is_not_there_is_not_guessed_at(self, lookalikes: TritonServer) -> None:
        """1 for a model that Triton does not have, 3 for a Triton that is not there, 2 for a name that is none."""
        absent = run("check", "--suggest", "nope", "--endpoint", lookalikes.url)
        assert (absent.exit_code, absent.stdout) == (1, "")
        assert "has not loaded a model nope" in absent.stderr
        gone = run("check", "--suggest", "nope", "--endpoint", "http://127.0.0.1:1")
        assert (gone.exit_code, len(gone.stderr.splitlines())) == (3, 1)
        wrong = run("check", "--suggest", "a/b", "--endpoint", lookalikes.url)
        assert (wrong.exit_code, len(wrong.stderr.splitlines())) == (2, 1)


def runs_as_suggested(url: str, model_name: str) -> None:
    """Ask for a configuration, and run one job by it."""
    with inference_on(url, model_name) as adapter:
        model = adapter.describe(model_name)
    suggestion = suggest(model)
    assert suggestion.works, suggestion.missing
    config = RuntimeConfig.model_validate(dict(suggestion.fields))
    with inference_on(url, **suggestion.fields) as adapter:
        if config.kind == "tensors":
            assert probe(MODEL, config, model, adapter, "").ok
            return

        def answer() -> Generation | None:
            # The queue of one of the models lets nobody wait for more than 0.1 s, however busy the machine is.
            with suppress(*([QueueFull] if model_name == HASTY_QUEUE else [])):
                return infer(adapter, "a b", max_tokens=3)
            return None

        got = wait_until(answer, description=f"{model_name} answers")
    assert got is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) in {(2, 3), (1, 3), (1, 2), (1, 0), (2, 0), (1, 1)}


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--explain", "--probe"], "--explain"),
            (["--explain", "--suggest", "x"], "--explain"),
            (["--endpoint", "http://triton:8000"], "--endpoint goes with --suggest"),
            (["--prompt", "x"], "--prompt goes with --probe"),
            (["--probe", "--prompt", ""], "--prompt must not be empty"),
        ],
    )
    def test_what_goes_not_together_is_refused(self, arguments: list[str], words: str) -> None:
        """One line, exit 2, nothing connected to."""
        result = run("check", *arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1
