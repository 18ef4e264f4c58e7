"""The demo's Triton in a container of its own: the process becomes the server."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.acceptance.fleet import ROOT
from tests.conftest import MODELS
from tests.waiting import wait_until
from worker.sandbox.places import LOOPBACK, free_port
from worker.sandbox.serve import is_ready

_BECOME: Final = """
import sys
from pathlib import Path
from worker.sandbox.triton_server import TritonServer
TritonServer(Path(sys.argv[1]), control="explicit", models=["text_generation"], port=int(sys.argv[2]), address=sys.argv[3],
             exit_timeout_seconds=10).become()
"""


def test_the_process_becomes_the_server(tmp_path: Path) -> None:
    """It listens where it is told, its log goes where the process' went, and it ends with the process."""
    port, log = free_port(), tmp_path / "log"
    assert not is_ready(port)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", _BECOME, str(MODELS), str(port), LOOPBACK],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: is_ready(port), description="the server is ready", timeout=30)
    finally:
        process.terminate()
        assert process.wait(20) == 0
    assert "text_generation" in log.read_text()
    assert not is_ready(port)
