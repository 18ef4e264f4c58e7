"""Files that are none: a pipe for a configuration, and an output that takes nothing; and stream ids that are none."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.fleet import BIN
from tests.integration.command import run


def test_a_pipe_is_no_configuration(tmp_path: Path) -> None:
    """It is refused at once, not waited for."""
    pipe = tmp_path / "worker.json"
    os.mkfifo(pipe)
    ended = run("check", "--config", str(pipe))
    assert ended.exit_code == 2
    assert ended.stderr == f"speedinfer: {pipe}: is not a file\n"


@pytest.mark.parametrize("words", [("--version",), ("status", "--json")])
def test_an_output_that_takes_nothing_is_said(words: tuple[str, ...], redis_url: str) -> None:
    """In one line, with 1."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [str(BIN / "speedinfer"), *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=30,
            env={**os.environ, "SPEEDINFER_REDIS_URL": redis_url},
        )
    assert ended.returncode == 1
    assert ended.stderr == "speedinfer: the output cannot be written (no space left on device): write it elsewhere\n"


@pytest.mark.parametrize("stream_id", ["1-2-3", "5-", "-5", "18446744073709551616-0", "0-99999999999999999999999", "x"])
def test_what_is_no_stream_id_is_wrong_usage(stream_id: str) -> None:
    """Before anything connects."""
    ended = run("settlements", f"--after={stream_id}", "--redis-url", "redis://127.0.0.1:1")
    assert ended.exit_code == 2
    assert "--after takes a stream id" in ended.stderr
