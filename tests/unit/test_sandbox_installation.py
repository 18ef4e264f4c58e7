"""Whether this machine can run the embedded servers, and what it says when it cannot."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.sandbox.errors import SandboxUnavailable
from worker.sandbox.places import log_tail, package_directory
from worker.sandbox.triton_installation import (
    TritonInstallation,
    environment_of,
    numpy_problems,
    platform_problems,
    problems_of,
    version_tuple,
)


@pytest.mark.parametrize(
    ("system", "machine", "libc", "expected"),
    [
        ("Linux", "x86_64", ("glibc", "2.35"), None),
        ("Linux", "aarch64", ("glibc", "2.41"), None),
        ("Linux", "x86_64", ("glibc", "3.0"), None),
        ("Linux", "x86_64", ("glibc", "2.34"), "needs glibc 2.35 (Debian 12, Ubuntu 22.04 or newer), not glibc 2.34"),
        ("Linux", "x86_64", ("", ""), "not another libc"),
        ("Linux", "riscv64", ("glibc", "2.41"), "not on Linux riscv64"),
        ("Darwin", "arm64", ("", ""), "not on Darwin arm64"),
    ],
)
def test_an_unfit_system_is_named_with_what_would_fit(
    system: str, machine: str, libc: tuple[str, str], expected: str | None
) -> None:
    """Linux with a recent glibc passes; anything else is one phrase that names both sides."""
    problems = list(platform_problems(system, machine, libc))

    assert len(problems) == (expected is not None)
    assert expected is None or expected in problems[0]


@pytest.mark.parametrize(
    ("version", "fits"), [("1.26.4", True), ("2.0.0", False), ("2.5.5rc1", False), ("10.0", False)]
)
def test_a_numpy_that_would_feed_garbage_to_the_models_is_refused(version: str, *, fits: bool) -> None:
    """Numpy 2 is refused with the remedy, since Triton would not refuse it itself."""
    problems = list(numpy_problems(version))

    assert problems == [] if fits else "numpy<2" in problems[0]


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4), st.sampled_from(["", ".dev1", "rc2", "+local"]))
def test_versions_compare_by_their_leading_numbers(numbers: list[int], suffix: str) -> None:
    """Whatever follows the numbers does not disturb the ones before it."""
    text = ".".join(map(str, numbers))

    expected = tuple(numbers) if suffix in {"", ".dev1"} else tuple(numbers[:-1]) or (0,)

    assert version_tuple(text + suffix) == expected


def test_missing_parts_come_with_their_remedies_together(tmp_path: Path) -> None:
    """A stub that finds no libpython and a missing server are both said at once."""
    stub = tmp_path / "stub"
    stub.write_text("#!/bin/sh\nexit 127\n")
    stub.chmod(0o755)
    installation = TritonInstallation(tmp_path / "absent", tmp_path, stub, dict(os.environ))

    problems = "; ".join(problems_of(installation))

    assert "absent is missing: install nvidia-pytriton anew" in problems
    assert f"apt install libpython{sys.version_info.major}.{sys.version_info.minor}" in problems


def test_a_python_version_without_a_stub_is_refused(tmp_path: Path) -> None:
    """The wheel brings a stub per Python version; without one, the versions that work are named."""
    installation = TritonInstallation(Path(sys.executable), tmp_path, tmp_path / "absent", dict(os.environ))

    assert any("use Python 3.11 or 3.12" in problem for problem in problems_of(installation))


def test_the_models_see_this_python_and_nothing_that_misleads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """This interpreter is the first on PATH, its library is found, and PYTHONPATH and PYTHONHOME are gone."""
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PYTHONHOME", "/elsewhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/elsewhere")

    environment = environment_of(Path("/venv/bin/python"), Path("/python/lib"))

    assert environment["PATH"] == "/venv/bin:/usr/bin"
    assert environment["LD_LIBRARY_PATH"] == "/python/lib"
    assert not {"PYTHONPATH", "PYTHONHOME"} & environment.keys()
    assert "LD_LIBRARY_PATH" not in environment_of(Path("/venv/bin/python"), None)


def test_a_package_that_is_not_installed_is_named_with_its_remedy() -> None:
    """The message names the distribution and the extra that brings it."""
    with pytest.raises(SandboxUnavailable, match=r"no-such-thing is not installed: .* extra 'demo'"):
        package_directory("no_such_thing", "no-such-thing")


def test_a_log_is_quoted_by_its_last_lines_only(tmp_path: Path) -> None:
    """Errors carry the end of a server's log; a log that does not exist is no second error."""
    log = tmp_path / "log"
    log.write_text("\n".join(f"line {number}" for number in range(20)))

    assert log_tail(log, lines=2) == "line 18 | line 19"
    assert log_tail(tmp_path / "absent") == ""
