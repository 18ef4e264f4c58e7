"""``speedinfer batch`` that was ended, in whatever way: the same command goes on, and nothing is run or written twice."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tasks.job import GenerateJob
from tests.integration.batch_files import MODEL, BatchFiles
from tests.integration.quick_worker import QuickWorker
from tests.integration.settled import KEYS
from tests.integration.test_cli_batch import CHAT, config_with
from tests.waiting import wait_until
from worker.sandbox.valkey_server import ValkeyServer


@pytest.fixture
def files(tmp_path: Path, redis_url: str) -> BatchFiles:
    """A folder of the test's own."""
    return BatchFiles(tmp_path, redis_url)


class Gate:
    """An answer that settles jobs until ``after`` are settled, and the rest once it is opened."""

    def __init__(self, after: int) -> None:
        self._left = after
        self._opened = threading.Event()

    def __call__(self, job: GenerateJob) -> Any:
        """Give the prompt as the text, in time."""
        self._left -= 1
        if self._left < 0:
            self._opened.wait(30)
        return {"text": job.prompt}

    def open(self) -> None:
        """Let all of them through."""
        self._opened.set()


@contextlib.contextmanager
def started(files: BatchFiles, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, killed at the end."""
    command = [sys.executable, "-m", "worker.cli", *files.command(*options)]
    known = {name: value for name, value in os.environ.items() if not name.startswith("SPEEDINFER_")}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=known) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_lines(files: BatchFiles, count: int) -> None:
    """Return when so many lines are written."""
    wait_until(
        lambda: files.output.exists() and files.output.read_bytes().count(b"\n") >= count,
        description=f"{count} lines are written",
    )


class TestEndedAnywhere:
    @pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
    def test_the_same_command_goes_on_where_it_was(self, files: BatchFiles, ended_by: signal.Signals) -> None:
        """Every job is enqueued once and every line written once; Ctrl-C says how to go on."""
        prompts = files.write_prompts(120)
        gate = Gate(after=30)
        with QuickWorker(files.redis_url, answer=gate) as worker:
            with started(files, "--window", "50") as process:
                wait_for_lines(files, 30)
                process.send_signal(ended_by)
                _, said = process.communicate(timeout=20)
            before = files.output.read_bytes()
            gate.open()
            summary = files.summary("--window", "50")
        if ended_by == signal.SIGINT:
            assert process.returncode == 130
            assert "30 of 120 lines are written" in said
            assert "Traceback" not in said
        assert files.output.read_bytes().startswith(before)
        assert sorted(worker.prompts) == sorted(prompts)
        assert sorted(map(str, files.texts)) == sorted(prompts)
        assert summary["lines"] == {"total": 120, "succeeded": 120, "failed": 0}
        assert summary["run"]["lines"] == 90

    def test_half_a_line_is_written_whole(self, files: BatchFiles) -> None:
        """The kill came in the middle of it."""
        prompts = files.write_prompts(5)
        with QuickWorker(files.redis_url) as worker:
            files.summary("--keep-order")
            whole = files.output.read_bytes()
            files.output.write_bytes(whole[:-40])
            files.summary("--keep-order")
        assert files.output.read_bytes() == whole
        assert worker.prompts == prompts

    def test_a_lost_output_is_written_again_to_the_byte(self, files: BatchFiles) -> None:
        """From the results in Redis; no job is run for it."""
        files.write([{"prompt": "a", "max_tokens": 8}, "{", {"prompt": "b", "max_tokens": 8}])
        options = ("--keep-order", "--errors", str(files.errors))
        with QuickWorker(files.redis_url) as worker:
            files.summary(*options, exit_code=1)
            before = files.output.read_bytes(), files.errors.read_bytes()
            files.output.unlink()
            files.errors.unlink()
            files.summary(*options, exit_code=1)
        assert (files.output.read_bytes(), files.errors.read_bytes()) == before
        assert len(worker.jobs) == 2

    def test_a_second_run_changes_no_byte(self, files: BatchFiles, valkey: redis.Redis) -> None:
        """And says the same; Redis is not even asked."""
        files.write_prompts(5)
        with QuickWorker(files.redis_url):
            first = files.summary()
        left = {path.name: path.read_bytes() for path in files.folder.iterdir()}
        valkey.config_resetstat()
        second = files.summary()
        assert {path.name: path.read_bytes() for path in files.folder.iterdir()} == left
        assert {name: second[name] for name in ("lines", "usage", "failures", "batch_id")} == {
            name: first[name] for name in ("lines", "usage", "failures", "batch_id")
        }
        assert second["run"]["lines"] == 0
        assert "cmdstat_time" not in valkey.info("commandstats")

    def test_jobs_that_ended_in_between_are_not_sent_again(self, files: BatchFiles, valkey: redis.Redis) -> None:
        """Also when what guards against a repeated call has expired."""
        files.write_prompts(20)
        gate = Gate(after=5)
        with QuickWorker(files.redis_url, answer=gate) as worker:
            with started(files) as process:
                wait_for_lines(files, 5)
                process.kill()
            gate.open()
            wait_until(lambda: valkey.xlen(KEYS.settlements) == 20, description="all jobs are settled")
            valkey.delete(*(KEYS.enqueued(job.job_id) for job in worker.jobs))
            files.summary()
        assert len(worker.jobs) == 20

    def test_jobs_that_redis_has_lost_are_sent_again(self, files: BatchFiles, valkey: redis.Redis) -> None:
        """An emptied Redis has nothing of them left."""
        prompts = files.write_prompts(20)
        with started(files, "--window", "10") as process:
            wait_until(lambda: valkey.llen(KEYS.jobs(MODEL)) == 10, description="jobs are queued")
            process.kill()
        valkey.flushall()
        with QuickWorker(files.redis_url) as worker:
            files.summary()
        assert worker.prompts == prompts

    @pytest.mark.parametrize("template", [None, "{{ messages }}"])
    @pytest.mark.parametrize(("declared", "hours"), [({}, 8 * 24), ({"kind": "text", "settled_ttl_seconds": 3600}, 2)])
    def test_jobs_sent_so_long_ago_that_they_may_be_forgotten_are_not_run_again(
        self,
        files: BatchFiles,
        valkey: redis.Redis,
        tmp_path: Path,
        declared: dict[str, Any],
        hours: int,
        template: str | None,
    ) -> None:
        """Their lines say so; those that were never sent are.

        How long is remembered is for the workers to say, also where a configuration says all else that a batch has to know.
        """
        prompts = files.write_prompts(6)
        options = [] if template is None else ["--config", config_with(tmp_path, template)]
        with started(files, "--window", "3", *options) as process:
            wait_until(lambda: valkey.llen(KEYS.jobs(MODEL)) == 3, description="jobs are queued")
            process.kill()
        valkey.flushall()
        begun, sent = map(json.loads, files.journal.read_text().splitlines())
        valkey.hset(KEYS.models, MODEL, json.dumps(declared))
        long_ago = sent["at_ms"] - hours * 3_600_000
        files.journal.write_text(
            f"{json.dumps({**begun, 'created_at_ms': long_ago})}\n{json.dumps({**sent, 'at_ms': long_ago})}\n"
        )
        with QuickWorker(files.redis_url) as worker:
            summary = files.summary(*options, exit_code=1)
        assert worker.prompts == prompts[3:]
        assert summary["failures"] == {"outcome_unknown": 3}

    def test_a_chat_template_stays_that_of_the_batchs_beginning(self, files: BatchFiles, tmp_path: Path) -> None:
        """Else the jobs of one batch would not be alike, and one sent again would be another job."""
        files.write([CHAT, {**CHAT, "custom_id": "chat-2"}])
        gate = Gate(after=1)
        with QuickWorker(files.redis_url, answer=gate) as worker:
            with started(files, "--window", "1", "--config", config_with(tmp_path, "first")) as process:
                wait_for_lines(files, 1)
                process.kill()
            gate.open()
            files.summary("--config", config_with(tmp_path, "second"))
        assert worker.prompts == ["first", "first"]

    def test_an_outage_of_redis_is_borne(self, files: BatchFiles, durable_valkey: ValkeyServer) -> None:
        """The command goes on when it is back, and people are told meanwhile."""
        files.redis_url = durable_valkey.url
        prompts = files.write_prompts(40)
        with started(files, "--window", "20") as process:
            with QuickWorker(files.redis_url, most=10) as worker:
                wait_for_lines(files, 10)
            durable_valkey.kill()
            assert process.stderr is not None
            for line in process.stderr:
                if "Redis does not answer" in line:
                    break
            durable_valkey.restart()
            with QuickWorker(files.redis_url) as other:
                process.communicate(timeout=30)
        assert process.returncode == 0
        assert sorted(map(str, files.texts)) == sorted(prompts)
        assert sorted(worker.prompts + other.prompts) == sorted(prompts)


class TestWhoseFilesTheyAre:
    def test_another_input_is_another_batch(self, files: BatchFiles) -> None:
        """It is refused in the same output, and told what to do; --no-resume begins anew."""
        files.write_prompts(3)
        with QuickWorker(files.redis_url) as worker:
            files.summary()
            before = files.output.read_bytes()
            files.write_prompts(2)
            refused = files.run()
            assert (refused.exit_code, files.output.read_bytes()) == (2, before)
            assert "the input's content" in refused.stderr
            assert "--no-resume" in refused.stderr
            summary = files.summary("--no-resume")
        assert summary["lines"]["total"] == len(files.results()) == 2
        assert len(worker.jobs) == 5

    def test_a_file_that_no_batch_wrote_is_left_alone(self, files: BatchFiles) -> None:
        """Whatever is asked for."""
        files.write_prompts(1)
        files.output.write_text("my notes\n")
        for options in ((), ("--no-resume",)):
            assert files.run(*options).exit_code == 2
        assert files.output.read_text() == "my notes\n"
        assert not files.journal.exists()

    def test_a_strangers_line_in_the_output_is_named(self, files: BatchFiles) -> None:
        """Nothing is written behind it."""
        files.write_prompts(2)
        with QuickWorker(files.redis_url):
            files.summary()
        files.output.write_bytes(b'{"id":"batch_req_00_1"}\n' + files.output.read_bytes())
        result = files.run()
        assert (result.exit_code, "out.jsonl: line 1 " in result.stderr) == (2, True)

    def test_two_commands_cannot_be_at_work_on_one_output(self, files: BatchFiles) -> None:
        """The second one is refused, and the first goes on."""
        files.write_prompts(3)
        gate = Gate(after=1)
        with QuickWorker(files.redis_url, answer=gate), started(files) as process:
            wait_for_lines(files, 1)
            second = files.run()
            gate.open()
            assert process.wait(20) == 0
        assert (second.exit_code, "in use" in second.stderr) == (2, True)
        assert len(files.results()) == 3

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--output", "in.jsonl"], "different files"),
            (["--errors", "out.jsonl"], "different files"),
            (["--errors", "out.jsonl.journal"], "different files"),
            (["--output", "/dev/null"], "is not a file"),
            (["--output", "there/is/none/out.jsonl"], "is not a folder"),
            (["--errors", "/"], "is not a file"),
        ],
    )
    def test_files_that_cannot_be_used_are_refused_before_anything(
        self, files: BatchFiles, options: list[str], words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The line says which."""
        monkeypatch.chdir(files.folder)
        files.write_prompts(1)
        result = files.run(*options)
        assert (result.exit_code, words in result.stderr) == (2, True)
        assert [path.name for path in files.folder.iterdir()] == ["in.jsonl"]

    def test_an_input_that_is_no_file_is_refused(self, files: BatchFiles) -> None:
        """A pipe cannot be read again."""
        result = files.run(source=files.folder)
        assert (result.exit_code, "read more than once" in result.stderr) == (2, True)

    def test_a_full_disk_is_no_loss(self, files: BatchFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        """The line says what failed, and the same command goes on."""
        from worker.batch.output import ResultFile

        files.write_prompts(3)

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with QuickWorker(files.redis_url) as worker:
            with monkeypatch.context() as patch:
                patch.setattr(ResultFile, "append", refuse)
                result = files.run()
            assert (result.exit_code, "no space left" in result.stderr.lower()) == (1, True)
            files.summary()
        assert len(worker.jobs) == len(files.results()) == 3
