"""deploy/redis/users.acl holds the commands of the scripts: a new one that is not there would stop a worker in production."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.guarded import ROLES, USERS, rights
from worker import lua

SCRIPTS: Final = sorted(path.stem for path in Path(lua.__file__).parent.glob("*.lua"))

RUN_BY_OTHERS: Final = {
    "enqueue_once": ("gateway", "batch"),
    "replay_if_present": ("operator",),
    "trim_acknowledged": ("settlement",),
    "store_if_unchanged": ("worker", "operator"),
}
"""The scripts that are not the workers', or not theirs alone."""


@pytest.fixture
def commands(valkey: Any) -> set[str]:
    """Every command that the server knows, those of containers as ``xinfo|groups``."""
    return {name.decode() for name in valkey.execute_command("COMMAND LIST")}


def commands_in(source: str, known: set[str]) -> Iterator[str]:
    """The commands that a script's text names, wherever they stand: some are handed to a function."""
    code = re.sub(r"--.*", "", source)
    for word, following in re.findall(r"'([A-Z]+)'(?:,\s*'([A-Z]+)')?", code):
        name = word.lower()
        if f"{name}|{following.lower()}" in known:
            yield f"{name}|{following.lower()}"
        elif name in known and name != "type":
            yield name


@pytest.mark.parametrize("script", SCRIPTS)
def test_whoever_runs_a_script_may_run_its_commands(commands: set[str], script: str) -> None:
    """Write the missing right into users.acl, and the script's role here if it is not the worker's."""
    for role in RUN_BY_OTHERS.get(script, ("worker",)):
        missing = set(commands_in(lua.load(script), commands)) - rights(role)
        assert not missing, f"speedinfer-{role} runs {script}.lua and lacks: {sorted(missing)}"


def test_a_missing_right_would_be_noticed(commands: set[str]) -> None:
    """In a call, in a protected call, and as a function's argument."""
    text = "redis.call('GETDEL', k) redis.pcall('XINFO', 'STREAM', k) on_list('LMOVE', k) -- redis.call('FLUSHALL')"
    assert set(commands_in(text, commands)) == {"getdel", "xinfo|stream", "lmove"}


def test_every_right_is_a_command(commands: set[str]) -> None:
    """Of this server."""
    assert {right for role in ROLES for right in rights(role)} - commands == set()


def test_a_server_takes_the_file_as_it_is(valkey: Any) -> None:
    """Line by line, each user new."""
    for line in USERS:
        _, user, *rules = re.findall(r"\([^)]*\)|\S+", line)
        if user != "default":
            assert valkey.execute_command("ACL", "SETUSER", user, *rules) == b"OK"
            valkey.execute_command("ACL", "DELUSER", user)
