"""Settings from files and variables: every form, who wins, where a problem is said to be, and that no secret is shown."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from settings.load import ConfigurationError, Problem, load_settings, settings_from
from settings.schema import Settings
from tests.unit.test_settings_schema import SEED, with_

TOML = """
worker_id = "triton-01"
runtime_endpoint = "http://triton:8000"
supported_models = ["acme/model-1"]
[runtime_config]
model_name = "text_generation"
[gpu_pool]
max_concurrency = 4
"""
YAML = """
worker_id: triton-01
runtime_endpoint: http://triton:8000
supported_models: [acme/model-1]
runtime_config: &common
  model_name: text_generation
gpu_pool: {max_concurrency: 4}
models:
  acme/model-1: {<<: *common, model_version: "2"}
"""
MINIMAL = {
    "SPEEDINFER_WORKER_ID": "triton-{hostname}",
    "SPEEDINFER_RUNTIME_ENDPOINT": "http://triton:8000",
    "SPEEDINFER_SUPPORTED_MODELS": '["acme/model-1"]',
    "SPEEDINFER_RUNTIME_CONFIG__MODEL_NAME": "text_generation",
}


@pytest.fixture
def seed_file(tmp_path: Path) -> Path:
    """The seed of the contract as a JSON file."""
    return written(tmp_path / "worker.json", json.dumps(SEED))


def written(path: Path, text: str) -> Path:
    """The path, with the text in it."""
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(path: Path | None, environ: dict[str, str]) -> list[Problem]:
    """Everything that is refused."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path, environ, "host-1")
    return list(caught.value.problems)


def test_the_seed_file_loads_unchanged(seed_file: Path) -> None:
    """What existing installations have runs."""
    assert load_settings(seed_file, {}, "host-1") == settings_from(SEED)


def test_the_file_may_be_named_by_the_environment(seed_file: Path) -> None:
    """`SPEEDINFER_CONFIG` is the path where none is given, and is no field."""
    assert load_settings(None, {"SPEEDINFER_CONFIG": str(seed_file)}, "host-1").worker_id == "triton-01"


def test_a_path_that_is_given_wins_over_the_environments(seed_file: Path) -> None:
    """`--config` means what it says."""
    assert load_settings(seed_file, {"SPEEDINFER_CONFIG": "/none.json"}, "host-1").worker_id == "triton-01"


@pytest.mark.parametrize(("name", "text"), [("w.toml", TOML), ("w.yaml", YAML), ("w.YML", YAML)])
def test_toml_and_yaml_hold_the_same_tree(tmp_path: Path, name: str, text: str) -> None:
    """The suffix says which; YAML's anchors and merges work."""
    loaded = load_settings(written(tmp_path / name, text), {}, "host-1")
    assert (loaded.gpu_pool.max_concurrency, loaded.concurrency) == (4, 4)
    assert loaded.runtime_for("acme/model-1").model_name == "text_generation"


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    """Some editors write one."""
    assert load_settings(written(tmp_path / "w.json", "\ufeff" + json.dumps(SEED)), {}, "h").worker_id == "triton-01"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("w.json", '{"a": 1,\n "b" 2}', "is not JSON: Expecting ':' delimiter (line 2, column 6)"),
        ("w.json", '{"a": {"b": 1, "b": 2}}', "has the key 'b' twice in one object"),
        ("w.json", '{"a": NaN}', "has NaN, which is not a JSON number"),
        ("w.json", '{"a": -Infinity}', "has -Infinity, which is not a JSON number"),
        ("w.json", "[1]", "must hold a mapping of fields to values"),
        ("w.json", "", "is not JSON: Expecting value (line 1, column 1)"),
        ("w.json", "[" * 200_000, "nested too deep"),
        ("w.json", "1" * 5000, "a number too long"),
        ("w.toml", "a = 1\nb =", "is not TOML: Invalid value (at end of document)"),
        ("w.toml", "a = 1\na = 2", "is not TOML: Cannot overwrite a value"),
        ("w.yaml", "a: 1\nb: [", "(line 2, column 5)"),
        ("w.yaml", "a: 1\nb: 2\na: 3", "has the key 'a' twice in one mapping (line 3, column 1)"),
        ("w.yaml", "? [a]\n: 1", "is not YAML: found unhashable key"),
        ("w.yaml", "a: \x01", "is not YAML: special characters are not allowed"),
        ("w.yaml", "a: 2026-99-99", "is not YAML that can be read"),
        ("w.yaml", "a: !!python/object:os.system x", "could not determine a constructor"),
        ("w.yaml", "", "must hold a mapping of fields to values"),
        ("w.ini", "", "must end in .json, .toml, .yaml or .yml"),
    ],
)
def test_a_file_that_is_no_tree_is_refused_with_the_place(tmp_path: Path, name: str, text: str, reason: str) -> None:
    """Wrong syntax is one problem that names the file, and line and column where the parser knows them."""
    path = written(tmp_path / name, text)
    (found,) = problems_of(path, {})
    assert (found.source, found.field, found.value) == (str(path), "", "")
    assert reason in found.reason


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """It may be absent, a folder, or no text."""
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "latin.json").write_bytes(b'{"worker_id": "\xe9"}')
    assert problems_of(tmp_path / "none.json", {})[0].reason == "cannot be read: No such file or directory"
    assert problems_of(tmp_path / "folder.json", {})[0].reason == "cannot be read: Is a directory"
    assert problems_of(tmp_path / "latin.json", {})[0].reason == "is not UTF-8 (byte 15)"


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [
        ("w.yaml", f"{YAML}\n1: 2", "1"),
        ("w.yaml", f"{YAML}\nmetadata: &m\n  self: *m", "metadata.self.self"),
        ("w.json", json.dumps({**SEED, "worker_type": "\ud800"}), "worker_type"),
        ("w.json", json.dumps({**SEED, "\ud800": 1}), "'\\ud800'"),
    ],
)
def test_names_and_texts_that_no_schema_can_speak_of_are_refused(
    tmp_path: Path, name: str, text: str, field: str
) -> None:
    """Keys that are no text, lone surrogates and a tree that holds itself."""
    (found,) = problems_of(written(tmp_path / name, text), {})
    assert found.field == field


def test_no_configuration_at_all_is_one_problem() -> None:
    """It says how to give one."""
    (found,) = problems_of(None, {"HOME": "/root"})
    assert (
        str(found) == "configuration: none given: use --config FILE, or set SPEEDINFER_CONFIG or SPEEDINFER_… variables"
    )


def test_variables_alone_may_suffice() -> None:
    """A container needs no file."""
    loaded = load_settings(None, MINIMAL, "host-1")
    assert (loaded.worker_id, loaded.runtime_config.model_name) == ("triton-host-1", "text_generation")


@pytest.mark.parametrize(
    ("name", "text", "attributes", "expected"),
    [
        ("GPU_POOL__MAX_CONCURRENCY", "8", "gpu_pool.max_concurrency", 8),
        ("GPU_POOL", '{"max_concurrency": 8}', "gpu_pool.max_concurrency", 8),
        ("WORKER_ID", "123", "worker_id", "123"),
        ("LEASE_SECONDS", "3", "lease_seconds", 3),
        ("LEASE_SECONDS", "2.5", "lease_seconds", 2.5),
        ("MAX_QUEUE_SECONDS", "60", "max_queue_seconds", 60),
        ("MAX_QUEUE_SECONDS", "", "max_queue_seconds", None),
        ("MAX_QUEUE_SECONDS", "null", "max_queue_seconds", None),
        ("LOG_UPSTREAM_ERRORS", "true", "log_upstream_errors", True),
        ("LOG_UPSTREAM_ERRORS", "Off", "log_upstream_errors", False),
        ("LOG_LEVEL", "debug", "log_level", "debug"),
        ("SUPPORTED_MODELS", '["a", "b"]', "supported_models", ("a", "b")),
        ("RUNTIME_CONFIG__MODEL_VERSION", "2", "runtime_config.model_version", "2"),
        ("RUNTIME_CONFIG__MODEL_VERSION", "", "runtime_config.model_version", None),
        ("RUNTIME_CONFIG__MAX_TOKENS_LIMIT", "100", "runtime_config.max_tokens_limit", 100),
        ("RUNTIME_CONFIG__CONSTANTS", '{"n": 1}', "runtime_config.constants", {"n": 1}),
        ("RUNTIME_CONFIG__CONSTANTS__Flag", "true", "runtime_config.constants", {"Flag": True}),
        ("RUNTIME_CONFIG__CONSTANTS__Flag", "some text", "runtime_config.constants", {"Flag": "some text"}),
        ("RUNTIME_CONFIG__OPTIONS__seed", "random_seed", "runtime_config.options", {"seed": "random_seed"}),
        ("REDIS_URL", "unix:///run/redis.sock", "redis_address", "unix:///run/redis.sock"),
    ],
)
def test_a_variable_sets_any_field(seed_file: Path, name: str, text: str, attributes: str, expected: object) -> None:
    """`__` parts levels; the text is read as the field's type."""
    value: Any = load_settings(seed_file, {f"SPEEDINFER_{name}": text}, "host-1")
    for attribute in attributes.split("."):
        value = getattr(value, attribute)
    assert value == expected


def test_a_variable_sets_one_models_field(seed_file: Path) -> None:
    """Public names stand in a variable's name as they are."""
    environ = {"SPEEDINFER_MODELS__acme/model-1__TIMEOUT_SECONDS": "7"}
    assert load_settings(seed_file, environ, "h").runtime_for("acme/model-1").timeout_seconds == 7


def test_variables_are_laid_over_the_file_key_by_key(tmp_path: Path) -> None:
    """What a variable does not name stays as the file has it; of two variables the more precise one wins."""
    path = written(tmp_path / "w.json", json.dumps(with_("retry", {"max_attempts": 7, "max_seconds": 9})))
    environ = {"SPEEDINFER_RETRY__MAX_SECONDS": "4", "SPEEDINFER_RETRY": '{"max_seconds": 5, "base_seconds": 2}'}
    retry = load_settings(path, environ, "host-1").retry
    assert (retry.max_attempts, retry.max_seconds, retry.base_seconds) == (7, 4, 2)


@pytest.mark.parametrize(
    ("name", "text", "field", "value", "reason"),
    [
        (
            "GPU_POOL__MAX_CONCURENCY",
            "8",
            "gpu_pool.max_concurency",
            "8",
            "no such field; did you mean max_concurrency?",
        ),
        ("WORKERID", "x", "workerid", '"x"', "no such field; did you mean worker_id?"),
        ("STREAM", "true", "stream", "true", "streaming is not supported"),
        ("RUNTIME_CONFIG__CONSTANTS__stream", "true", "runtime_config.constants.stream", "true", "streaming is not"),
        ("CONCURRENCY", "four", "concurrency", '"four"', "must be an integer"),
        ("CONCURRENCY", "4.0", "concurrency", '"4.0"', "must be an integer"),
        ("CONCURRENCY", "", "concurrency", '""', "must be an integer"),
        ("CONCURRENCY", "9" * 5000, "concurrency", f'"{"9" * 58}…', "must be an integer"),
        ("LEASE_SECONDS", "nan", "lease_seconds", "NaN", "must be a finite number"),
        ("RETRY__MAX_SECONDS", "inf", "retry.max_seconds", "Infinity", "must be a finite number"),
        ("LOG_UPSTREAM_ERRORS", "maybe", "log_upstream_errors", '"maybe"', "must be true or false"),
        ("SUPPORTED_MODELS", "a,b", "supported_models", '"a,b"', "is not JSON: Expecting value (line 1, column 1)"),
        ("MODELS", '{"a": 1, "a": 1}', "models", '"{\\"a\\": 1, \\"a\\": 1}"', "has the key 'a' twice"),
        (
            "METRICS_ADDRESS",
            "9464",
            "metrics_address",
            '"9464"',
            "must be host:port, such as 0.0.0.0:9464 or [::]:9464",
        ),
        ("WORKER_ID__X", "1", "worker_id", "(a mapping)", "must be text"),
        ("", "1", "", "1", "no such field"),
        ("WORKER_SERVICE_PORT_HTTP", "80", "worker_service_port_http", '"80"', "enableServiceLinks: false"),
        ("PORT", "tcp://10.0.0.1:80", "port", '"tcp://10.0.0.1:80"', "enableServiceLinks: false"),
    ],
)
def test_a_wrong_variable_is_named_as_the_source(
    seed_file: Path, name: str, text: str, field: str, value: str, reason: str
) -> None:
    """What a variable brought is not blamed on the file."""
    (found,) = problems_of(seed_file, {f"SPEEDINFER_{name}": text})
    assert (found.source, found.field, found.value) == (f"SPEEDINFER_{name}", field, value)
    assert reason in found.reason


def test_a_variable_cannot_set_a_part_of_what_another_sets_to_a_single_value(seed_file: Path) -> None:
    """Neither of the two is dropped without a word."""
    environ = {"SPEEDINFER_WORKER_ID": "a", "SPEEDINFER_WORKER_ID__X": "1"}
    (found,) = problems_of(seed_file, environ)
    assert (found.source, found.reason) == (
        "SPEEDINFER_WORKER_ID__X",
        "worker_id is set as a whole to what has no fields, by another variable",
    )


def test_a_variable_that_cannot_be_read_is_one_problem() -> None:
    """The required field that it should have set is not called missing as well."""
    assert [p.reason.partition(":")[0] for p in problems_of(None, MINIMAL | {"SPEEDINFER_SUPPORTED_MODELS": "a"})] == [
        "is not JSON"
    ]


def test_each_problem_names_its_own_source(tmp_path: Path) -> None:
    """File and variables may both be wrong at once; each problem is one line of the error's text."""
    path = written(tmp_path / "w.json", json.dumps(with_("runtime", "vllm")))
    error = ConfigurationError(problems_of(path, {"SPEEDINFER_CONCURRENCY": "0", "SPEEDINFER_MODELS": "x"}))
    assert str(error).splitlines() == [
        'SPEEDINFER_MODELS: models = "x": is not JSON: Expecting value (line 1, column 1)',
        f"{path}: runtime = \"vllm\": must be 'triton'",
        "SPEEDINFER_CONCURRENCY: concurrency = 0: must be greater than or equal to 1",
    ]


def test_headers_come_from_the_environment_and_files(tmp_path: Path, seed_file: Path) -> None:
    """They are read once, at the start; a line's end in a file is no part of the value."""
    secret = written(tmp_path / "token", "from-file\n")
    environ = {
        "SPEEDINFER_RUNTIME_HEADERS__Authorization": "env:TRITON_TOKEN",
        "SPEEDINFER_RUNTIME_HEADERS__X-Key": f"file:{secret}",
        "SPEEDINFER_RUNTIME_HEADERS__X-Plain": "plain: text",
        "TRITON_TOKEN": "Bearer from-env",
    }
    headers = load_settings(seed_file, environ, "host-1").runtime_headers
    assert {name: value.get_secret_value() for name, value in headers.items()} == {
        "Authorization": "Bearer from-env",
        "X-Key": "from-file",
        "X-Plain": "plain: text",
    }


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("A", "env:ABSENT", "the environment variable ABSENT is not set, or empty"),
        ("A", "env:EMPTY", "the environment variable EMPTY is not set, or empty"),
        ("A", "env:Bearer abc", "what follows env: is not a variable's name"),
        ("A", "file:/none", "the file /none cannot be read: No such file or directory"),
        ("A", "file:\x00", "cannot be read: not a path"),
        ("A", "two\r\nX: lines", "must be 1 to 16384 printable ASCII characters on one line"),
        ("A", "", "must be 1 to 16384 printable ASCII characters on one line"),
        ("A", 5, "must be text"),
        ("A b", "x", "is not a header's name"),
        ("Content-Length", "5", "is written by the client itself"),
        ("transfer-encoding", "chunked", "is written by the client itself"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused(name: str, value: object, reason: str) -> None:
    """What stands behind it is looked up at the start, not with the first request; its value is never shown."""
    with pytest.raises(ConfigurationError) as caught:
        settings_from(with_("runtime_headers", {name: value}), environ={"EMPTY": ""})
    (found,) = caught.value.problems
    assert found.value == "(hidden)"
    assert reason in found.reason


def test_a_header_is_set_once_whatever_its_case() -> None:
    """Two spellings of one header would both be sent."""
    with pytest.raises(ConfigurationError, match="is set twice"):
        settings_from(with_("runtime_headers", {"X-Key": "a", "x-key": "b"}))


@pytest.mark.parametrize(
    ("tls", "endpoint", "field", "reason"),
    [
        ({"ca_file": "/none.pem"}, "https://triton", "runtime_tls.ca_file", "is not a file that can be read"),
        ({"key_file": __file__}, "https://triton", "runtime_tls.key_file", "has no use without cert_file"),
        ({"ca_file": __file__, "verify": False}, "https://triton", "runtime_tls.verify", "must be true where ca_file"),
        ({"verify": False}, "http://triton", "runtime_tls", "has no use: runtime_endpoint is not an https:// URL"),
    ],
)
def test_certificates_are_checked_before_anything_connects(
    tls: dict[str, object], endpoint: str, field: str, reason: str
) -> None:
    """A file that is not there, or a setting that would have no effect, is refused."""
    with pytest.raises(ConfigurationError) as caught:
        settings_from(with_("runtime_tls", tls, with_("runtime_endpoint", endpoint)))
    assert [(p.field, p.reason.startswith(reason)) for p in caught.value.problems] == [(field, True)]


def test_certificates_that_are_there_are_taken() -> None:
    """Paths come back as paths."""
    tree = with_("runtime_tls", {"ca_file": __file__, "cert_file": __file__}, with_("runtime_endpoint", "https://t"))
    assert settings_from(tree).runtime_tls.ca_file == Path(__file__)


CANARY = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"rediss://user:{CANARY}@redis.example:6380/3",
        f"redis://:{CANARY}@redis.example/0?socket_timeout=5",
        f"redis://redis.example?password={CANARY}",
        f"unix://user:{CANARY}@/run/redis.sock",
    ],
)
def test_the_passwords_place_is_the_client_alone(url: str) -> None:
    """Neither the settings' text, nor a dump of them, nor the address for people holds it."""
    loaded = settings_from(with_("redis_url", url) | {"runtime_headers": {"Authorization": f"Bearer {CANARY}"}})
    assert loaded.redis_url.get_secret_value() == url
    for text in (repr(loaded), str(loaded), loaded.model_dump_json(), str(loaded.model_dump()), loaded.redis_address):
        assert CANARY not in text


LEAKS: list[tuple[str, object]] = [
    ("redis_url", f"redis://:{CANARY}"),
    ("redis_url", f"redis://u:{CANARY}#x@redis"),
    ("redis_url", f"redis://u:{CANARY}/x@redis"),
    ("redis_url", f"http://u:{CANARY}@redis"),
    ("redis_url", f"redis://redis/x?password={CANARY}"),
    ("redis_url", f"redis://u:{CANARY}@redis:port"),
    ("redis_url", f"redis://u:{CANARY}@[redis"),
    ("redis_url", CANARY),
    ("redis_url", [CANARY]),
    ("redis_url", {"url": CANARY}),
    ("redis_ulr", f"redis://u:{CANARY}@redis"),
    ("redis_pasword", CANARY),
    ("redis_password", f"{CANARY}\n"),
    ("redis_sentinel", {"password": CANARY}),
    ("redis_sentinel", {"pasword": CANARY}),
    ("database", f"postgres://u:{CANARY}@x"),
    ("runtime_headers", CANARY),
    ("runtime_headers", [CANARY]),
    ("runtime_headers", {"A": f"\n{CANARY}"}),
    ("runtime_headers", {"A": [CANARY]}),
    ("runtime_headers", {"A b": CANARY}),
    ("runtime_headers", {"A": CANARY, "a": CANARY}),
    ("runtime_header", {"Authorization": CANARY}),
    ("runtime_header", CANARY),
    ("runtime_endpoint", f"http://u:{CANARY}@triton"),
    ("runtime_endpoint", f"http://triton?token={CANARY}"),
    ("runtime_endpoint", f"http://u:{CANARY}@triton:port"),
]


@pytest.mark.parametrize(("field", "value"), LEAKS)
def test_no_refusal_shows_a_secret(seed_file: Path, field: str, value: object) -> None:
    """Neither in the words, nor in what a traceback or a variable's problem would print."""
    with pytest.raises(ConfigurationError) as caught:
        settings_from(with_(field, value))
    assert CANARY not in f"{caught.value}{caught.value!r}"
    with pytest.raises(ValidationError) as plain:
        Settings.model_validate(with_(field, value))
    assert CANARY not in str(plain.value)
    text = value if isinstance(value, str) else json.dumps(value)
    assert CANARY not in str(problems_of(seed_file, {f"SPEEDINFER_{field.upper()}": text}))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://redis", "must begin with redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://"),
        ("redis://", "must name a host"),
        ("redis://redis:port/0", "must have a number from 1 to 65535 as its port"),
        ("redis://redis/first", "must have nothing but the database's number as its path"),
        ("redis://u:a#b@redis", "must have no fragment: write a '#' in a password as %23"),
        ("unix://", "must name a socket: unix:///path"),
    ],
)
def test_a_redis_url_that_no_client_could_use_is_refused(url: str, reason: str) -> None:
    """Of its value only the scheme is shown."""
    with pytest.raises(ConfigurationError) as caught:
        settings_from(with_("redis_url", url))
    (found,) = caught.value.problems
    assert (found.value, found.reason) == (f"{url.partition(':')[0]}://(hidden)", reason)


def numbers() -> st.SearchStrategy[Any]:
    """Numbers at and beyond every edge."""
    return st.one_of(st.integers(), st.floats(), st.sampled_from([1 << 63, -(1 << 64), 10**400, float("inf")]))


SCALARS = st.one_of(st.none(), st.booleans(), numbers(), st.text(st.characters(), max_size=8), st.binary(max_size=3))
NAMES = st.one_of(
    st.sampled_from(sorted({*Settings.model_fields, *SEED["runtime_config"], "stream"})), st.text(max_size=5)
)
TREES = st.recursive(SCALARS, lambda t: st.lists(t, max_size=3) | st.dictionaries(NAMES, t, max_size=4), max_leaves=12)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def outcome(load: Callable[[], Settings]) -> tuple[Problem, ...]:
    """The problems, or none; anything else that is raised fails the test."""
    try:
        load()
    except ConfigurationError as error:
        return error.problems or (Problem("", "", "", "an error without a problem\n"),)
    return ()


@QUICK
@given(st.dictionaries(NAMES, TREES, max_size=5), st.booleans())
def test_no_tree_raises_anything_but_our_error(tree: dict[str, Any], on_seed: bool) -> None:
    """Whatever a file holds, the answer is settings, or problems of one printable line each."""
    problems = outcome(lambda: settings_from({**SEED, **tree} if on_seed else tree))
    assert all(str(p).isprintable() and len(p.value) <= 60 for p in problems)


@QUICK
@given(st.sampled_from([".json", ".toml", ".yaml"]), st.one_of(st.text(max_size=40), TREES.map(repr)))
def test_no_file_raises_anything_but_our_error(tmp_path: Path, suffix: str, text: str) -> None:
    """Nor does a file of any text."""
    path = tmp_path / f"w{suffix}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigurationError):
        load_settings(path, {}, "host-1")


def variable_names() -> Iterator[str]:
    """Every field's variable, and one that means nothing."""
    yield "NONE"
    for name in Settings.model_fields:
        yield name.upper()
        yield f"{name.upper()}__MAX_SECONDS"


@QUICK
@given(st.dictionaries(st.sampled_from(list(variable_names())), st.text(max_size=6), max_size=4))
def test_no_variable_raises_anything_but_our_error(environ: dict[str, str]) -> None:
    """Nor do variables of any text."""
    variables = {f"SPEEDINFER_{name}": text for name, text in environ.items()}
    problems = outcome(lambda: load_settings(None, MINIMAL | variables, "host-1"))
    assert {p.source for p in problems} <= variables.keys()


def test_loading_reads_no_environment_but_the_one_it_is_given(monkeypatch: pytest.MonkeyPatch, seed_file: Path) -> None:
    """What the process has in its own environment, or on its command line, changes nothing."""
    for name in ("SPEEDINFER_WORKER_ID", "WORKER_ID", "worker_id"):
        monkeypatch.setenv(name, "from-the-process")
    monkeypatch.setattr(sys, "argv", ["x", "--worker_id=from-the-command"])
    assert load_settings(seed_file, {}, "host-1").worker_id == "triton-01"
    (found,) = problems_of(seed_file, {"SPEEDINFER__CLI_PARSE_ARGS": "true"})
    assert found.field == "_cli_parse_args"
