"""``speedinfer batch`` against a real Valkey: what goes in, what comes out, and in which order."""

import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from tasks.job import GenerateJob
from tests.acceptance.fleet import ROOT, SEED
from tests.integration.batch_files import MODEL, BatchFiles
from tests.integration.quick_worker import QuickWorker
from tests.integration.settled import FAILED, KEYS, bury, settle
from tests.waiting import wait_until

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
CHAT = {
    "custom_id": "chat-1",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8},
}
COMPLETION = {
    "custom_id": "text-1",
    "method": "POST",
    "url": "/v1/completions",
    "body": {"model": MODEL, "prompt": "Hello", "max_tokens": 8},
}


@pytest.fixture
def files(tmp_path: Path, redis_url: str) -> BatchFiles:
    """A folder of the test's own."""
    return BatchFiles(tmp_path, redis_url)


def queued(client: redis.Redis) -> int:
    """How many jobs wait."""
    return int(client.llen(KEYS.jobs(MODEL)))


def config_with(folder: Path, template: str) -> str:
    """A worker's configuration file with this chat template."""
    runtime = {**SEED["runtime_config"], "chat_template": template}
    path = folder / f"worker-{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({**SEED, "runtime_config": runtime}))
    return str(path)


def _selectors(words: list[str]) -> list[str]:
    """The rules of a user, those in brackets as one word each: as a command takes them."""
    return re.findall(r"\([^)]*\)|\S+", " ".join(words))


class TestWhatGoesIn:
    def test_openais_lines_of_both_kinds(self, files: BatchFiles, tmp_path: Path) -> None:
        """A chat goes through the template of the configuration; both come back in OpenAI's form."""
        files.write([CHAT, COMPLETION])
        with QuickWorker(files.redis_url) as worker:
            files.summary("--config", config_with(tmp_path, TEMPLATE))
        assert sorted(worker.prompts) == ["Hello", "user: Hi\nassistant:"]
        assert {line.custom_id: line.text for line in files.results()} == {
            "chat-1": "user: Hi\nassistant:",
            "text-1": "Hello",
        }
        assert {job.batch_id for job in worker.jobs} == {worker.jobs[0].job_id.partition(":")[0]}
        assert all(job.enqueued_at for job in worker.jobs)

    def test_a_table(self, files: BatchFiles) -> None:
        """Its columns are fields of a plain line."""
        table = files.folder / "in.csv"
        table.write_text('custom_id,prompt,max_tokens,temperature\na,"One,\ntwo",5,0.5\nb,Three,,\n')
        with QuickWorker(files.redis_url) as worker:
            files.summary("--max-tokens", "9", source=table)
        assert [(job.custom_id, job.prompt, job.max_tokens, job.parameters) for job in worker.jobs] == [
            ("a", "One,\ntwo", 5, {"temperature": 0.5}),
            ("b", "Three", 9, {}),
        ]
        assert sorted(str(line.text) for line in files.results()) == ["One,\ntwo", "Three"]

    def test_a_template_that_workers_have_registered(self, files: BatchFiles, valkey: redis.Redis) -> None:
        """No configuration is needed where the registry has it."""
        valkey.hset(KEYS.models, MODEL, json.dumps({"kind": "text", "parameters": [], "chat_template": TEMPLATE}))
        files.write([CHAT])
        with QuickWorker(files.redis_url) as worker:
            files.summary()
        assert worker.prompts == ["user: Hi\nassistant:"]

    def test_a_bad_line_is_an_error_line_and_the_rest_goes_on(self, files: BatchFiles) -> None:
        """With its number in the file; the command ends with 1."""
        files.write([{"prompt": "a", "max_tokens": 8}, "{not json", "", {"prompt": "b", "max_tokens": 0}, COMPLETION])
        with QuickWorker(files.redis_url) as worker:
            summary = files.summary(exit_code=1)
        assert worker.prompts == ["a", "Hello"]
        assert sorted((line.line, line.code) for line in files.results() if line.code) == [
            (2, "invalid_line"),
            (4, "invalid_job"),
        ]
        assert summary["lines"] == {"total": 4, "succeeded": 2, "failed": 2}
        assert summary["failures"] == {"invalid_line": 1, "invalid_job": 1}

    def test_strict_sends_nothing_if_a_line_is_bad(self, files: BatchFiles, valkey: redis.Redis) -> None:
        """Every bad line is named, up to twenty; nothing is left of the attempt."""
        files.write([{"prompt": "a", "max_tokens": 8}, *["{canary"] * 25])
        result = files.run("--strict")
        assert result.exit_code == 1
        assert "speedinfer: line 2: the line is not JSON\n" in result.stderr
        assert "and 5 more lines" in result.stderr
        assert "nothing was sent" in result.stderr
        assert "canary" not in result.stderr
        assert queued(valkey) == 0
        assert [path.name for path in files.folder.iterdir()] == ["in.jsonl"]

    def test_strict_runs_what_is_good(self, files: BatchFiles) -> None:
        """As without it."""
        prompts = files.write_prompts(3)
        with QuickWorker(files.redis_url):
            files.summary("--strict", "--keep-order")
        assert files.texts == prompts

    @pytest.mark.parametrize(
        ("line", "option"),
        [({"prompt": "a"}, "--max-tokens"), (CHAT, "--config")],
    )
    def test_what_an_option_would_give_is_asked_for_at_once(
        self, files: BatchFiles, valkey: redis.Redis, line: Any, option: str
    ) -> None:
        """A hundred thousand error lines would help nobody; nothing is begun."""
        files.write([line] * 3)
        result = files.run()
        assert (result.exit_code, option in result.stderr) == (2, True)
        assert queued(valkey) == 0
        assert not files.output.exists()

    def test_a_heading_without_prompts_is_wrong_usage(self, files: BatchFiles) -> None:
        """The line says what to do."""
        table = files.folder / "in.csv"
        table.write_text("question\nWhy?\n")
        result = files.run(source=table)
        assert (result.exit_code, "--prompt-column" in result.stderr) == (2, True)

    def test_an_empty_input_is_done_at_once(self, files: BatchFiles) -> None:
        """With an empty output."""
        files.write([])
        assert files.summary()["lines"]["total"] == 0
        assert files.output.read_bytes() == b""


class TestWhatComesOut:
    def test_failures_have_their_own_file_where_asked_for(self, files: BatchFiles) -> None:
        """Those of jobs and those of lines; the output has none then."""
        files.write([{"prompt": "good", "max_tokens": 8}, {"prompt": "bad", "max_tokens": 8}, "{"])

        def answer(job: GenerateJob) -> Any:
            return FAILED if job.prompt == "bad" else {"text": "fine"}

        with QuickWorker(files.redis_url, answer=answer):
            files.summary("--errors", str(files.errors), exit_code=1)
        assert files.texts == ["fine"]
        assert sorted((line.line, line.code) for line in files.failures()) == [(2, "invalid_job"), (3, "invalid_line")]

    def test_the_inputs_order_is_kept_where_asked_for(self, files: BatchFiles, valkey: redis.Redis) -> None:
        """Whatever is done first."""
        prompts = files.write_prompts(40)
        held: list[GenerateJob] = []

        def backwards(job: GenerateJob) -> None:
            held.append(job)
            if len(held) == 20:
                for each in reversed(held):
                    settle(valkey, each, text=each.prompt)
                held.clear()

        with QuickWorker(files.redis_url, answer=backwards):
            files.summary("--keep-order")
        assert files.texts == prompts

    def test_the_summary_has_counts_tokens_and_time(self, files: BatchFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        """For scripts as JSON, for people in four lines."""
        files.write_prompts(3)
        with QuickWorker(files.redis_url) as worker:
            # A job takes a second by this clock, and nothing else any time.
            clock = SimpleNamespace(monotonic=lambda: float(len(worker.jobs)))
            monkeypatch.setattr("worker.cli.batch_screen.time", clock)
            summary = files.summary()
        assert summary["lines"] == {"total": 3, "succeeded": 3, "failed": 0}
        assert summary["usage"] == {"prompt_tokens": 15, "completion_tokens": 6, "total_tokens": 21}
        assert summary["run"] == {"lines": 3, "wall_seconds": 3.0, "tokens_per_second": 7.0}
        lines = files.run("--no-json").stdout.splitlines()
        assert lines[0] == "3 lines: 3 succeeded, 0 failed"
        assert lines[1] == "tokens: 15 prompt + 6 completion = 21"
        assert lines[3] == f"results in {files.output}"

    def test_a_terminal_shows_how_far_it_is(self, files: BatchFiles) -> None:
        """Lines, rate, tokens, failures by code and the time that is left."""
        files.write([*({"prompt": f"p{number}", "max_tokens": 8} for number in range(4)), "{"])
        gate = threading.Event()

        def answer(job: GenerateJob) -> Any:
            if job.prompt == "p3":
                gate.wait(20)
            return {"text": "x"}

        shown = b""  # Decoded at the end: a character may come in two parts.
        main, its = pty.openpty()
        with QuickWorker(files.redis_url, answer=answer):
            command = [sys.executable, "-m", "worker.cli", *files.command("--json")]
            env = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=its, env=env) as process:
                os.close(its)
                while b"4/5" not in shown or b"0:00:0" not in shown:
                    shown += os.read(main, 4096)
                gate.set()
                while process.poll() is None:
                    try:
                        shown += os.read(main, 4096)
                    except OSError:
                        break
        os.close(main)
        assert process.returncode == 1
        said = shown.decode(errors="replace")
        assert "no live worker serves acme/model-1" in said
        assert "21 tokens · 1 failed (invalid_line 1)" in said
        assert "/s" in said

    def test_a_log_shows_it_in_lines_where_asked_for(self, files: BatchFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        """Now and then; here, at every step."""
        monkeypatch.setattr("worker.cli.batch_screen.LINE_EVERY_SECONDS", 0.0)
        files.write_prompts(3)
        with QuickWorker(files.redis_url):
            said = files.run("--progress", "--window", "1").stderr.splitlines()
        (shown,) = [line for line in said if line.startswith("speedinfer: 2 of 3 lines, ")]
        assert shown.endswith("/s · 14 tokens · 0 failed")
        with QuickWorker(files.redis_url):
            assert " of 3 lines, " not in files.run("--no-resume").stderr


class TestFollowing:
    def test_no_more_than_the_window_is_under_way(self, files: BatchFiles, valkey: redis.Redis) -> None:
        """The rest of the file is read as results come."""
        files.write_prompts(60)
        most: list[int] = []

        def answer(_: GenerateJob) -> Any:
            most.append(queued(valkey) + 1)
            return {"text": "x"}

        with QuickWorker(files.redis_url, answer=answer):
            files.summary("--window", "7")
        assert max(most) <= 7
        assert len(most) == 60

    @pytest.mark.parametrize("role", ["gateway", "batch"])
    def test_nobody_elses_settlements_are_read(self, files: BatchFiles, valkey: redis.Redis, role: str) -> None:
        """A gateway's user, who has no right to the settlement queue, runs a batch; so does a batch's own user."""
        for words in map(str.split, (ROOT / "deploy/redis/users.acl").read_text().splitlines()):
            if words[:2] == ["user", f"speedinfer-{role}"]:
                rules = [">secret" if word.startswith("#") else word for word in words[2:]]
                valkey.execute_command("ACL", "SETUSER", "sender", *_selectors(rules))  # type: ignore[no-untyped-call]  # redis-py's has no types
        files.write([{"prompt": f"p{number}", "max_tokens": 8} for number in range(5)])
        address = files.redis_url
        files.redis_url = address.replace("//", "//sender:secret@")
        try:
            with QuickWorker(address):
                files.summary()
        finally:
            valkey.acl_deluser("sender")
        assert len(files.results()) == 5

    def test_a_result_that_has_expired_is_read_from_its_settlement(
        self, files: BatchFiles, valkey: redis.Redis
    ) -> None:
        """The marker says where it is."""
        files.write_prompts(1)
        with QuickWorker(files.redis_url) as worker:
            files.summary()
        files.output.write_bytes(b"")
        valkey.delete(KEYS.result(worker.jobs[0].job_id))
        files.summary()
        assert files.texts == ["prompt 1"]

    def test_a_result_that_is_nowhere_any_more_is_reported(self, files: BatchFiles, valkey: redis.Redis) -> None:
        """The job has ended and is not run again; the line says that its text is gone."""
        files.write_prompts(1)
        with QuickWorker(files.redis_url) as worker:
            files.summary()
        files.output.write_bytes(b"")
        valkey.delete(KEYS.result(worker.jobs[0].job_id), KEYS.settlements)
        files.summary(exit_code=1)
        assert [line.code for line in files.results()] == ["result_expired"]
        assert queued(valkey) == 0

    def test_a_job_that_becomes_a_dead_letter_ends_its_line(
        self, files: BatchFiles, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing will ever be settled for it."""
        monkeypatch.setattr("worker.batch.collecting.THOROUGH_SECONDS", 0.1)
        files.write_prompts(2)

        def answer(job: GenerateJob) -> Any:
            if job.prompt == "prompt 2":
                return {"text": "x"}
            bury(valkey, b'{"job_id":"other"}')
            bury(valkey, job.model_dump_json().encode(), reason="too_large")
            return None

        with QuickWorker(files.redis_url, answer=answer):
            files.summary(exit_code=1)
        assert sorted((line.code or "", line.line or 0) for line in files.results()) == [("", 0), ("too_large", 1)]

    def test_a_model_that_nobody_serves_is_said_to_be_that(self, files: BatchFiles) -> None:
        """Once, however many lines name it."""
        files.write_prompts(5)
        with QuickWorker(files.redis_url):
            result = files.run()
        assert result.stderr.count(f"no live worker serves {MODEL}") == 1

    def test_an_unreachable_redis_ends_with_3(self, files: BatchFiles) -> None:
        """At once, and without a batch having begun."""
        files.write_prompts(1)
        files.redis_url = "redis://user:canary@127.0.0.1:1/0"
        result = files.run()
        assert result.exit_code == 3
        assert "canary" not in result.output
        assert not files.journal.exists()
        wait_until(lambda: not files.output.exists(), description="no output is left")
