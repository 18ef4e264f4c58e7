"""The gateways of docs/how-to/gateway.md do as they stand what the page says of them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tasks.job import GenerateJob
from tasks.reading import ValidJob, read_job
from tests.guarded import Guarded, guarded_valkey
from tests.integration.settled import FAILED, KEYS, settle
from tests.jobs import LIMITS, MAX_JOB_BYTES, MODEL
from tests.waiting import wait_until

PAGE = (Path(__file__).parents[2] / "docs/how-to/gateway.md").read_text()

Program = Callable[[], list[str]]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A Valkey in which a gateway has a gateway's rights and no more."""
    with guarded_valkey(tmp_path_factory.mktemp("acl")) as running:
        yield running


def snippet(language: str) -> str:
    """The page's program in a language."""
    (found,) = re.findall(rf"^```{language} gateway\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def prepared(directory: Path, *command: str) -> None:
    """Run a package manager in the directory; the test is skipped where it is missing, or gets nothing."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=100, check=False)
    if ended.returncode:
        pytest.skip(f"{' '.join(command)} fails here: {ended.stderr.strip().splitlines()[-1:]}")


def python(directory: Path) -> list[str]:
    """With the redis-py that the worker has."""
    (directory / "gateway.py").write_text(snippet("python"))
    return [sys.executable, "gateway.py"]


def node(directory: Path) -> list[str]:
    """With the newest client."""
    (directory / "gateway.mjs").write_text(snippet("js"))
    prepared(directory, "npm", "install", "--silent", "redis")
    return ["node", "gateway.mjs"]


def go(directory: Path) -> list[str]:
    """With the newest client."""
    (directory / "main.go").write_text(snippet("go"))
    (directory / "go.mod").write_text("module gateway\n\ngo 1.24\n")
    prepared(directory, "go", "get", "github.com/redis/go-redis/v9")
    return ["go", "run", "."]


@pytest.mark.timeout(300)  # A compiler may have to make Go's library first.
@pytest.mark.parametrize("language", [python, node, go])
def test_a_gateway_sends_a_job_and_prints_what_became_of_it(
    language: Callable[[Path], list[str]], guarded: Guarded, tmp_path: Path
) -> None:
    """Its job is valid, its text or its error's code is what it prints, and it needs no right that its user lacks."""
    command = language(tmp_path)
    guarded.admin.acl_log_reset()
    environment = {**os.environ, "REDIS_URL": guarded.secret_url("gateway")}
    for fields, printed in (({"text": "Rhine, Elbe, Oder."}, "Rhine, Elbe, Oder."), (FAILED, "invalid_job")):
        with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as gateway:
            settle(guarded.admin, taken(guarded.admin), **fields)
            out, _ = gateway.communicate(timeout=30)
        assert (out, gateway.returncode) == (f"{printed}\n", 0)
    assert guarded.denied() == []


def taken(client: redis.Redis) -> GenerateJob:
    """The next job of the model's queue, which has to be a valid one."""
    queue = KEYS.jobs(MODEL)
    raw = wait_until(lambda: client.rpop(queue), description="the gateway pushes its job", timeout=120)
    assert isinstance(raw, bytes)
    read = read_job(raw, queue_model=MODEL, limits=LIMITS, max_job_bytes=MAX_JOB_BYTES)
    assert isinstance(read, ValidJob)
    assert isinstance(read.job, GenerateJob)
    return read.job
