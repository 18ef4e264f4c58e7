"""The command line without any server: help, usage, exit codes, and errors of one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import redis
import typer
from typer.testing import CliRunner, Result

from settings.problems import ConfigurationError, Problem
from worker.cli.commands import program
from worker.cli.failures import NotRight, Unreachable, WrongUsage
from worker.cli.program import Program
from worker.sandbox.errors import SandboxUnavailable
from worker.triton.endpoint import UnusableCertificates

COMMANDS = ("demo", "check", "worker", "models", "status", "submit", "batch", "settlements", "dead-letters")
SUBCOMMANDS = (
    ("settlements", "trim"),
    ("settlements", "groups"),
    ("dead-letters", "list"),
    ("dead-letters", "show"),
    ("dead-letters", "replay"),
    ("dead-letters", "delete"),
)


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own environment reaches the commands."""
    for name in ("SPEEDINFER_CONFIG", "SPEEDINFER_REDIS_URL", "SPEEDINFER_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(program(), list(arguments), input=stdin, env={"TERM": "dumb", "COLUMNS": "120"})


def assert_one_line_error(result: Result, exit_code: int, *words: str) -> None:
    """The command ended with this code and one line on stderr that has these words; stdout is empty."""
    assert result.exit_code == exit_code, result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


class TestHelp:
    def test_all_commands_are_listed_in_the_order_of_their_use(self) -> None:
        """The root's help names every command of the contract and the exit codes."""
        shown = run("--help").stdout
        places = [shown.index(f"│ {command} ") for command in COMMANDS]
        assert places == sorted(places)
        assert "Exit codes" in shown

    @pytest.mark.parametrize("command", [*((command,) for command in COMMANDS), *SUBCOMMANDS])
    def test_each_command_says_what_it_does(self, command: tuple[str, ...]) -> None:
        """--help works on each and ends well."""
        result = run(*command, "--help")
        assert result.exit_code == 0
        assert "Usage:" in result.stdout
        assert "--help" in result.stdout

    @pytest.mark.parametrize("command", [c for c in COMMANDS if c != "demo"])
    def test_each_command_shows_an_example(self, command: str) -> None:
        """The help has a line that can be typed as it stands."""
        assert f"\n     speedinfer {command}" in run(command, "--help").stdout.replace(
            "\n speedinfer", "\n     speedinfer"
        )

    def test_help_loads_no_client_of_redis_or_triton(self) -> None:
        """What a command needs is imported when it runs: help is quick, and a worker is patched before its clients load."""
        code = (
            "import sys; from worker.cli.commands import program; program(); "
            "print([m for m in ('redis', 'celery', 'kombu', 'gevent', 'tritonclient', 'ssl', 'structlog') if m in sys.modules])"
        )
        assert python(code).stdout == "[]\n"

    def test_the_version_is_the_distributions(self) -> None:
        """--version says what is installed."""
        result = run("--version")
        assert (result.exit_code, result.stdout.split()[0]) == (0, "speedinfer")


class TestUsage:
    @pytest.mark.parametrize(
        ("arguments", "word"),
        [
            (["frob"], "frob"),
            (["status", "--frob"], "--frob"),
            (["submit", "hi", "--max-tokens", "many"], "--max-tokens"),
            (["dead-letters", "show"], "ID"),
            (["dead-letters", "replay"], "ID"),
            (["settlements", "frob"], "frob"),
            (["batch", "prompts.jsonl"], "--output"),
            (["batch", "prompts.jsonl", "-o", "out", "--window", "0"], "--window"),
            (["batch", "prompts.jsonl", "-o", "out", "--format", "xml"], "--format"),
            (["worker", "--log-level", "loud"], "--log-level"),
        ],
    )
    def test_wrong_arguments_are_one_line_and_exit_2(self, arguments: list[str], word: str) -> None:
        """The line names what is wrong and where help is."""
        assert_one_line_error(run(*arguments), 2, word, "--help")

    @pytest.mark.parametrize("arguments", [[], ["dead-letters"]])
    def test_no_arguments_show_the_help(self, arguments: list[str]) -> None:
        """Whoever does not know what to type is told."""
        result = run(*arguments)
        assert result.exit_code == 2
        assert "Usage:" in result.output

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["status", "--redis-url", "http://x"], ["--redis-url", "redis://"]),
            (["status", "--namespace", "a:b"], ["--namespace"]),
            (["settlements", "--after", "yesterday"], ["--after"]),
            (["dead-letters", "show", "yesterday"], ["yesterday"]),
            (["dead-letters", "replay", "1-0", "2"], ["2"]),
            (["dead-letters", "delete", "-"], ["-"]),
            (["submit", "hi"], ["--model"]),
            (["submit", "hi", "-m", "m", "-p", "temperature"], ["--param", "NAME=VALUE"]),
            (["submit", "hi", "-m", "m", "--metadata", "=x"], ["--metadata"]),
            (["submit", "hi", "-m", "m", "--job-id", "not valid"], ["job_id"]),
            (["submit", "hi", "-m", "m", "--max-tokens", "0"], ["max_tokens"]),
            (["submit", "", "-m", "m"], ["prompt"]),
        ],
    )
    def test_what_can_be_refused_without_a_server_is(self, arguments: list[str], words: list[str]) -> None:
        """No Redis is asked: the line says what is wrong, and the exit code is 2."""
        assert_one_line_error(run(*arguments), 2, *words)

    def test_a_prompt_that_is_no_utf8_is_refused(self) -> None:
        """What is not text is not guessed at."""
        assert_one_line_error(run("submit", "-", "-m", "m", stdin=b"\xff\xfe"), 2, "UTF-8")

    def test_a_refused_job_does_not_show_its_prompt(self) -> None:
        """An error line may end in a log."""
        result = run("submit", "canary-prompt", "-m", "m", "--max-tokens", "0", "--tenant", "canary" * 50)
        assert result.exit_code == 2
        assert "canary" not in result.output

    @pytest.mark.parametrize("variable", ["SPEEDINFER_REDIS_URL", "SPEEDINFER_NAMESPACE"])
    def test_a_wrong_variable_is_named(self, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Commands that take their Redis from the environment say which variable cannot be used."""
        monkeypatch.setenv(variable, "::")
        assert_one_line_error(run("status"), 2, variable)


class TestConfiguration:
    @pytest.mark.parametrize(
        "command", [["check"], ["models"], ["status", "--this-worker"], ["status"], ["settlements"]]
    )
    def test_everything_wrong_with_a_file_is_one_line_each(self, command: list[str], tmp_path: Path) -> None:
        """File, field and reason are named, and nothing is connected to."""
        file = tmp_path / "worker.json"
        file.write_text(json.dumps({"worker_id": "a b", "runtime": "vllm"}))
        result = run(*command, "--config", str(file))
        assert result.exit_code == 2
        lines = result.stderr.splitlines()
        assert len(lines) > 2
        assert all(line.startswith(f"speedinfer: {file}: ") for line in lines)
        assert any("worker_id" in line for line in lines)

    @pytest.mark.parametrize("command", [["check"], ["models"], ["status", "--this-worker"]])
    def test_a_command_that_needs_a_configuration_says_how_to_give_one(self, command: list[str]) -> None:
        """Without any, the line names the option and the variable."""
        assert_one_line_error(run(*command), 2, "--config", "SPEEDINFER_CONFIG")

    def test_a_worker_with_a_wrong_configuration_ends_before_anything_connects(self, tmp_path: Path) -> None:
        """Exit 2 with a line per problem."""
        file = tmp_path / "worker.json"
        file.write_text("{}")
        ended = python("from worker.cli import main; main()", "worker", "--config", str(file))
        assert ended.returncode == 2
        assert "worker_id: must be set" in ended.stderr
        assert "Traceback" not in ended.stderr

    def test_a_workers_process_is_patched_before_its_clients_are_loaded(self) -> None:
        """What they take of the unpatched modules would block all greenlets."""
        ended = python(
            """
import sys
from gevent import monkey
def patch_all():
    print([name for name in ("redis", "celery", "kombu", "ssl", "structlog", "settings.load") if name in sys.modules])
monkey.patch_all = patch_all
from worker.cli import main
main()
""",
            "worker",
            "--config",
            "/not/there.json",
        )
        assert ended.stdout == "[]\n"
        assert ended.returncode == 2


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "exit_code"),
        [
            (NotRight("said"), 1),
            (WrongUsage("said"), 2),
            (Unreachable("said"), 3),
            (RuntimeError("not said"), 1),
            (redis.ConnectionError("not said"), 3),
            (redis.ResponseError("WRONGTYPE not said"), 1),
            (redis.ResponseError("NOAUTH not said"), 2),
            (redis.AuthenticationError("not said"), 2),
            (redis.BusyLoadingError("not said"), 3),
            (ConfigurationError([Problem("worker.json", "namespace", "", "said")]), 2),
            (UnusableCertificates("said"), 2),
            (SandboxUnavailable("said"), 1),
        ],
    )
    def test_an_exception_becomes_one_line_and_its_code(self, error: Exception, exit_code: int) -> None:
        """Also one that nobody expected; what it says stays unseen, since it may quote a job."""
        result = CliRunner().invoke(failing(error), ["fail"])
        assert_one_line_error(result, exit_code)
        assert ("said" in result.stderr) == ("not said" not in str(error))
        assert "not said" not in result.stderr

    def test_debug_shows_the_traceback(self) -> None:
        """--debug is taken by every command."""
        result = CliRunner().invoke(failing(RuntimeError("why")), ["fail", "--debug"])
        assert result.exit_code == 1
        assert "Traceback" in result.stderr
        assert "why" in result.stderr

    def test_ctrl_c_ends_with_130(self) -> None:
        """As a shell expects of a program that was interrupted."""
        assert CliRunner().invoke(failing(KeyboardInterrupt()), ["fail"]).exit_code == 130


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code with these arguments in a process of its own, in which a warning is an error."""
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


def failing(error: BaseException) -> typer.Typer:
    """A program whose one command raises."""
    from worker.cli.options import Debug

    app = typer.Typer(cls=Program, pretty_exceptions_enable=False)

    @app.callback()
    def root() -> None:
        """Have subcommands."""

    @app.command("fail")
    def fail(*, _debug: Debug = False) -> None:
        raise error

    return app
