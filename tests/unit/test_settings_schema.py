"""What the settings accept, what they make of it, and what they refuse with which words."""

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from settings.digest import config_digest
from settings.load import ConfigurationError, settings_from
from settings.schema import Settings

SEED: dict[str, Any] = {
    "worker_id": "triton-01",
    "worker_type": "nvidia-gpu",
    "runtime": "triton",
    "runtime_endpoint": "http://triton:8000",
    "supported_models": ["acme/model-1"],
    "runtime_config": {
        "model_name": "text_generation",
        "input_name": "text_input",
        "max_tokens_input_name": "max_tokens",
        "output_name": "text_output",
        "prompt_tokens_output_name": "prompt_tokens",
        "completion_tokens_output_name": "completion_tokens",
    },
}


def with_(field: str, value: object, tree: dict[str, Any] = SEED) -> dict[str, Any]:
    """The seed with the value at a place whose levels are parted by blanks."""
    changed = copy.deepcopy(tree)
    at = changed
    *sections, last = field.split()
    for section in sections:
        at = at.setdefault(section, {})
    at[last] = value
    return changed


def problems_of(tree: dict[str, Any], **machine: Any) -> list[tuple[str, str, str]]:
    """Field, shown value and reason of everything that is refused."""
    with pytest.raises(ConfigurationError) as caught:
        settings_from(tree, source="worker.json", **machine)
    assert {p.source for p in caught.value.problems} == {"worker.json"}
    return [(p.field, p.value, p.reason) for p in caught.value.problems]


def test_the_seed_gets_the_contracts_defaults() -> None:
    """What existing installations have loads unchanged; all else has the default that the contract names."""
    settings = settings_from(SEED)
    runtime = settings.runtime_for("acme/model-1")
    assert {f: getattr(runtime, f) for f in SEED["runtime_config"]} == SEED["runtime_config"]
    assert (runtime.timeout_seconds, runtime.connect_timeout_seconds) == (120, 5)
    assert (runtime.max_prompt_bytes, runtime.max_result_bytes, runtime.max_tokens_limit) == (1 << 20, 16 << 20, None)
    assert (runtime.transport, runtime.kind, runtime.model_version) == ("auto", "text", None)
    assert settings.redis_url.get_secret_value() == "redis://127.0.0.1:6379/0"
    assert (settings.endpoint_id, settings.pool_name) == ("triton:8000", "triton:8000")
    assert (settings.namespace, settings.concurrency, settings.max_queue_seconds) == ("speedinfer", 32, None)
    assert (settings.lease_seconds, settings.heartbeat_seconds, settings.drain_seconds) == (10, 5, 30)
    assert (settings.max_deliveries, settings.max_job_bytes) == (5, 4 << 20)
    assert (settings.result_ttl_seconds, settings.settled_ttl_seconds) == (86400, 604800)
    pool = {"name": None, "max_concurrency": 32, "requests_per_minute": None, "tokens_per_minute": None}
    assert settings.gpu_pool.model_dump() == {**pool, "kept_slots": {}, "adaptive": False}
    assert settings.circuit.model_dump() == {
        "consecutive_failures": 5,
        "failure_rate": 0.5,
        "window": 100,
        "minimum_calls": 20,
        "slow_call_seconds": None,
        "open_seconds": 10,
        "max_open_seconds": 300,
        "half_open_calls": 3,
    }
    assert settings.retry.model_dump() == {"max_attempts": 3, "base_seconds": 0.5, "max_seconds": 30}
    assert (settings.metrics_address, settings.pass_through_triton_metrics) == (None, False)
    assert settings.triton_metrics_url == "http://triton:8002/metrics"
    assert settings.log_upstream_errors is False


HUGE = 1 << 20000  # more digits than Python writes
TEXT_256 = "x" * 256
REFUSED = [
    ("worker_id", "a b", '"a b"', "must be 1 to 100 letters, digits, '.', '_' or '-', after {hostname} is replaced"),
    ("worker_id", "", '""', "after {hostname} is replaced"),
    ("worker_id", "{hostname}\n", '"localhost\\n"', "after {hostname} is replaced"),
    ("worker_id", "x" * 101, '"xxxx', "must be 1 to 100 letters"),
    ("worker_id", 7, "7", "must be text"),
    ("runtime", "vllm", '"vllm"', "must be 'triton'"),
    ("runtime_endpoint", "grpc://triton:8001", '"grpc://triton:8001"', "must be an http:// or https:// URL"),
    ("runtime_endpoint", "triton:8000", '"triton:8000"', "must be an http:// or https:// URL"),
    ("runtime_endpoint", "http://", '"http://"', "must be an http:// or https:// URL"),
    ("runtime_endpoint", "http://u:pw@triton", '"http://***@triton"', "must hold no credentials"),
    ("runtime_endpoint", "http://triton/?key=1", '"http://triton/?***"', "must have no query and no fragment"),
    ("runtime_endpoint", "http://triton/#", '"http://triton/#"', "must have no query and no fragment"),
    ("runtime_endpoint", "http://triton/a/../b", '"http://triton/a/../b"', "no '..' in its path"),
    ("runtime_endpoint", "http://triton/a b", '"http://triton/a b"', "must have no spaces"),
    ("runtime_endpoint", "http://triton:0", '"http://triton:0"', "number from 1 to 65535"),
    ("runtime_endpoint", "http://triton:99999", '"http://triton:99999"', "number from 1 to 65535"),
    ("runtime_endpoint", "http://[::1", '"http://[::1"', "is not a URL"),
    ("runtime_endpoint", "http://:8000", '"http://:8000"', "must name a host"),
    ("supported_models", [], "(a list)", "must have at least one entry"),
    ("supported_models", "acme/model-1", '"acme/model-1"', "must be a list"),
    ("runtime_config model_name", "a/b", '"a/b"', "must be letters, digits"),
    ("runtime_config model_version", 1, "1", "must be text"),
    ("runtime_config model_version", "..", '".."', "not dots alone"),
    ("runtime_config max_tokens_limit", 0, "0", "greater than or equal to 1"),
    ("runtime_config max_tokens_limit", 1 << 31, "2147483648", "less than or equal to 2147483647"),
    ("runtime_config timeout_seconds", 0, "0", "greater than 0"),
    ("runtime_config timeout_seconds", "120", '"120"', "must be a number"),
    ("runtime_config timeout_seconds", float("nan"), "NaN", "must be a finite number"),
    ("runtime_config timeout_seconds", float("inf"), "Infinity", "must be a finite number"),
    ("runtime_config connect_timeout_seconds", 121, "121.0", "must be at most timeout_seconds (120)"),
    ("runtime_config max_prompt_bytes", True, "true", "must be an integer"),
    ("runtime_config max_prompt_bytes", 1.0, "1.0", "must be an integer"),
    ("runtime_config max_prompt_bytes", HUGE, "(a huge number)", "less than or equal to 1073741824"),
    ("runtime_config input_name", "", '""', "must be 1 to 200 printable characters"),
    ("runtime_config max_tokens_input_name", None, "null", "only where options_json_input is set"),
    ("runtime_config max_tokens_input_name", "text_input", '"text_input"', "is the same tensor"),
    ("runtime_config completion_tokens_output_name", "prompt_tokens", '"prompt_tokens"', "is the same tensor"),
    ("runtime_config finish_reason_output_name", "text_output", '"text_output"', "is the same tensor"),
    ("runtime_config constants text_input", "x", '"text_input"', "is the same tensor"),
    ("runtime_config constants n", float("inf"), "Infinity", "must be true or false, a finite number"),
    ("runtime_config constants n", 1 << 64, "18446744073709551616", "a finite number of 64 bits"),
    ("runtime_config constants n", {}, "(a mapping)", "or a list of these"),
    ("runtime_config constants n", [], "(a list)", "or a list of these"),
    ("runtime_config constants n", None, "null", "or a list of these"),
    ("runtime_config options seed", "max_tokens", '"max_tokens"', "is the same tensor"),
    ("runtime_config kind", "image", '"image"', "must be 'text' or 'tensors'"),
    ("runtime_config", [], "(a list)", "must be a mapping of names to values"),
    ("runtime_tls verify", 1, "1", "must be true or false"),
    ("namespace", "{a", '"{a"', "all of it in {} or none"),
    ("namespace", "a:b", '"a:b"', "all of it in {} or none"),
    ("concurrency", "4", '"4"', "must be an integer"),
    ("concurrency", True, "true", "must be an integer"),
    ("concurrency", 0, "0", "greater than or equal to 1"),
    ("lease_seconds", 0.1, "0.1", "greater than or equal to 0.5"),
    ("drain_seconds", -1, "-1", "greater than or equal to 0"),
    ("result_ttl_seconds", 0.5, "0.5", "must be an integer"),
    ("max_deliveries", 0, "0", "greater than or equal to 1"),
    ("max_queue_seconds", 0, "0", "greater than 0"),
    ("gpu_pool max_concurrency", 0, "0", "greater than or equal to 1"),
    ("gpu_pool name", "", '""', "must be 1 to 200 printable characters"),
    ("circuit failure_rate", 1.5, "1.5", "less than or equal to 1"),
    ("circuit minimum_calls", 101, "101", "must be at most window (100)"),
    ("circuit open_seconds", 301, "301.0", "must be at most max_open_seconds (300)"),
    ("retry base_seconds", 31, "31.0", "must be at most max_seconds (30)"),
    ("retry max_attempts", 0, "0", "greater than or equal to 1"),
    ("log_level", "loud", '"loud"', "must be 'debug'"),
    ("max_job_byte", 5, "5", "there is no such field; did you mean max_job_bytes?"),
    ("gpu_pool max_conc", 5, "5", "there is no such field; did you mean max_concurrency?"),
    ("models acme/model-1 timeout_second", 5, "5", "there is no such field; did you mean timeout_seconds?"),
    ("zzz", TEXT_256, f'"{"x" * 58}…', "there is no such field"),
    ("zzz", "two\nlines\u2028", '"two\\nlines\\u2028"', "there is no such field"),
]


@pytest.mark.parametrize(("field", "value", "shown", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_a_wrong_value_is_named_with_its_field_and_the_reason(
    field: str, value: object, shown: str, reason: str
) -> None:
    """One wrong value is one problem: its dotted field, the value as shown, the reason in words."""
    ((found_field, found_value, found_reason),) = problems_of(with_(field, value))
    assert found_field == field.replace(" ", ".")
    assert found_value.startswith(shown)
    assert len(found_value) <= 60
    assert reason in found_reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a b", "must be 1 to 200 letters"),
        ("a/../b", "must not contain '..'"),
        ("", "must be 1 to 200 letters"),
        ("x" * 201, "must be 1 to 200 letters"),
        ("acme/model-1", "is listed twice"),
        (5, "must be text"),
    ],
)
def test_each_public_name_is_checked(name: object, reason: str) -> None:
    """A name that no queue can have, or one listed twice, is refused by its place in the list."""
    ((field, _, found),) = problems_of(with_("supported_models", ["acme/model-1", name]))
    assert field == "supported_models.1"
    assert reason in found


STREAMING = [
    ("stream", True),
    ("Stream", True),
    ("runtime_config stream", True),
    ("runtime_config constants stream", True),
    ("runtime_config constants stream", [[True]]),
    ("runtime_config constants stream", 1),
    ("runtime_config constants stream", "true"),
    ("runtime_config options stream", True),
    ("models acme/model-1 stream", True),
    ("models acme/model-1 constants stream", True),
    ("gpu_pool stream", True),
    ("unknown deeply stream", True),
    ("streaming", True),
    ("Streaming", True),
    ("runtime_config streaming", True),
    ("runtime_config constants streaming", True),
    ("runtime_config constants streaming", [[True]]),
    ("runtime_config constants streaming", 1),
    ("models acme/model-1 constants streaming", "true"),
]


@pytest.mark.parametrize(("field", "value"), STREAMING)
def test_streaming_is_refused_wherever_it_stands(field: str, value: object) -> None:
    """`"stream": true` has its own reason, at any depth, as a constant, and within unknown fields too."""
    reasons = {at: reason for at, _, reason in problems_of(with_(field, value))}
    assert reasons[field.replace(" ", ".")].startswith("streaming is not supported")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("runtime_config options stream", "x"),
        ("runtime_config options streaming", "x"),
        ("runtime_config options live", "stream"),
        ("runtime_config options live", "streaming"),
        ("models acme/model-1 options live", "Streaming"),
        (
            "runtime_config",
            {"model_name": "m", "options_json_input": "j", "options_json_parameters": {"streaming": "BOOL"}},
        ),
    ],
)
def test_no_job_may_ask_for_streaming_by_a_parameter(field: str, value: object) -> None:
    """No parameter is called so, and none goes into an input that is."""
    problems = problems_of(with_(field, value))
    assert any("streaming is not supported: no job may ask for it" in reason for _, _, reason in problems), problems


@pytest.mark.parametrize("name", ["stream", "streaming"])
def test_a_model_may_be_told_not_to_stream(name: str) -> None:
    """A constant of that name that is false is what some models require."""
    runtime = settings_from(with_(f"runtime_config constants {name}", value=False)).runtime_config
    assert runtime.constants == {name: False}


def test_defaults_may_be_written() -> None:
    """A file that spells them out loads."""
    tree = with_("gpu_pool", {"adaptive": False, "requests_per_minute": None})
    tree["runtime_config"] |= {"kind": "text", "transport": "infer", "preset": None}
    assert settings_from(tree).runtime_config.transport == "infer"


@pytest.mark.parametrize("field", ["worker_id", "runtime_endpoint", "supported_models", "runtime_config"])
def test_a_required_field_that_is_missing_is_named(field: str) -> None:
    """What no worker can do without is asked for."""
    assert problems_of({k: v for k, v in SEED.items() if k != field}) == [(field, "", "must be set")]


def test_every_problem_is_listed_not_only_the_first() -> None:
    """Someone with ten slips in a file puts all of them right at once."""
    tree = with_("retry base_seconds", 31, with_("stream", value=True, tree=with_("concurrency", "x")))
    tree |= {"runtime": "x", "bogus": 1, "models": {"other": {"kind": "text", "nope": 1}}, "worker_id": "a b"}
    assert sorted(field for field, _, _ in problems_of(tree)) == [
        "bogus",
        "concurrency",
        "models.other",
        "models.other.nope",
        "retry.base_seconds",
        "runtime",
        "stream",
        "worker_id",
    ]


def test_a_models_own_fields_are_laid_over_the_common_ones() -> None:
    """An override changes what it names and inherits the rest; other models keep the common configuration."""
    tree = with_("supported_models", ["a", "b"])
    tree["runtime_config"] |= {"timeout_seconds": 60, "constants": {"x": 1}}
    tree["models"] = {"b": {"model_name": "other", "model_version": "3", "timeout_seconds": 2}}
    settings = settings_from(tree)
    other = settings.runtime_for("b")
    assert (other.model_name, other.model_version, other.constants) == ("other", "3", {"x": 1})
    assert (other.timeout_seconds, other.connect_timeout_seconds) == (2, 2)
    assert settings.runtime_for("a") == settings.runtime_config
    assert settings.runtime_config.timeout_seconds == 60


def test_a_model_that_is_not_supported_has_no_configuration() -> None:
    """Nothing but `supported_models` is ever run."""
    with pytest.raises(KeyError):
        settings_from(SEED).runtime_for("acme/model-2")


def test_overrides_of_a_model_that_is_not_supported_are_refused() -> None:
    """A misspelt name would otherwise leave its model with the common configuration, unseen."""
    assert problems_of(with_("models acme/model-2 model_version", "1")) == [
        ("models.acme/model-2", "(a mapping)", "is not in supported_models")
    ]


def test_an_override_is_checked_as_what_it_makes_of_the_model() -> None:
    """A tensor named twice is found when one name comes from the model and the other is inherited."""
    tree = with_("models acme/model-1 constants", {"text_input": 1})
    assert [(field, value) for field, value, _ in problems_of(tree)] == [
        ("models.acme/model-1.constants.text_input", '"text_input"')
    ]


def test_shortening_a_limit_shortens_the_defaults_below_it() -> None:
    """One short timeout needs no second field to be written."""
    tree = with_("circuit", {"window": 5, "max_open_seconds": 2})
    tree |= {"retry": {"max_seconds": 0.1}, "gpu_pool": {"max_concurrency": 4}}
    settings = settings_from(tree)
    assert (settings.circuit.minimum_calls, settings.circuit.open_seconds) == (5, 2)
    assert (settings.retry.base_seconds, settings.concurrency) == (0.1, 4)


def test_settings_cannot_be_changed() -> None:
    """What was checked at the start is what is used to the end, in its mappings and lists too."""
    settings = settings_from(with_("runtime_config constants", {"a": [1, 2]}))
    with pytest.raises(ValidationError):
        settings.concurrency = 3  # type: ignore[misc]  # that it cannot be set is what is tested
    with pytest.raises(TypeError):
        settings.runtime_config.constants["b"] = 1  # type: ignore[index]  # as above
    assert settings.runtime_config.constants["a"] == (1, 2)


def test_plain_validation_gives_the_same_settings() -> None:
    """Tests may build settings without a file, an environment or a machine's name."""
    assert Settings.model_validate(SEED) == settings_from(SEED)


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("http://triton:8000", "triton:8000"),
        ("http://Triton", "triton:80"),
        ("https://triton/base/", "triton:443"),
        ("http://localhost:8000", "machine-7:8000"),
        ("http://127.0.0.1:9000", "machine-7:9000"),
        ("http://127.8.8.8", "machine-7:80"),
        ("http://0.0.0.0:8000", "machine-7:8000"),
        ("http://[::1]:8000", "machine-7:8000"),
        ("http://[::ffff:127.0.0.1]:8000", "machine-7:8000"),
        ("http://[fd00::1]:8000", "[fd00::1]:8000"),
        ("http://10.0.0.1:8000", "10.0.0.1:8000"),
    ],
)
def test_the_endpoints_default_name_is_one_that_no_other_endpoint_has(endpoint: str, expected: str) -> None:
    """host:port, with the machine's name where the host would be the same on every machine."""
    assert settings_from(with_("runtime_endpoint", endpoint), hostname="Machine-7").endpoint_id == expected


def test_the_endpoint_loses_the_slash_at_its_end() -> None:
    """A base path is kept; what is appended begins with a slash."""
    settings = settings_from(with_("runtime_endpoint", "https://proxy.example:8443/triton-a/"))
    assert settings.runtime_endpoint == "https://proxy.example:8443/triton-a"


def test_the_workers_name_may_hold_the_machines() -> None:
    """`{hostname}` is replaced before the name is checked, so what it becomes must be a name too."""
    tree = with_("worker_id", "gpu-{hostname}")
    assert settings_from(tree, hostname="pod-1").worker_id == "gpu-pod-1"
    ((field, value, _),) = problems_of(tree, hostname="no name")
    assert (field, value) == ("worker_id", '"gpu-no name"')


def test_the_digest_tells_configurations_apart_but_not_workers_or_passwords() -> None:
    """Workers configured alike have one digest; what changes how jobs run changes it."""
    digest = config_digest(settings_from(SEED))
    assert len(digest) == 12
    for field, value in [("worker_id", "b"), ("redis_url", "redis://:pw@127.0.0.1:6379/0"), ("lease_seconds", 10.0)]:
        assert config_digest(settings_from(with_(field, value))) == digest
    for field, value in [("lease_seconds", 11), ("redis_url", "redis://other"), ("runtime_headers", {"A": "b"})]:
        assert config_digest(settings_from(with_(field, value))) != digest
