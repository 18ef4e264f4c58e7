"""A real Prometheus, where one is installed: as Debian's package `prometheus` has it."""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final, Self

import yaml

from tests.waiting import wait_until
from worker.sandbox.places import free_port

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "deploy/prometheus/rules.yml"
BINARY: Final = shutil.which("prometheus")
PROMTOOL: Final = shutil.which("promtool")
INSTALL: Final = "no prometheus on PATH: apt-get install prometheus"


def rules() -> list[dict[str, Any]]:
    """Return our rules."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


class Prometheus:
    """A context manager: a server that scrapes these addresses, with our rules, that wait for nothing."""

    def __init__(self, directory: Path, targets: list[str]) -> None:
        self._directory = directory
        self._targets = targets
        self.url = f"http://127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        hasty = re.sub(r"^ +for: .*\n", "", RULES.read_text(), flags=re.MULTILINE)
        (self._directory / "rules.yml").write_text(hasty)
        config = {
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "speedinfer", "static_configs": [{"targets": self._targets}]}],
        }
        (self._directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._log = (self._directory / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                str(BINARY),
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            cwd=self._directory,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._log.close()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression gives now, nothing while the server is not up."""
        path = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(path, timeout=5) as answer:  # noqa: S310 - our own address
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except OSError:
            return []

    def wait_until_fires(self, alert: str) -> dict[str, str]:
        """Return the labels of an alert once it fires."""
        asked = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
        found = wait_until(lambda: self.query(asked), description=f"{alert} fires", timeout=20, interval=0.1)
        labels: dict[str, str] = found[0]["metric"]
        return labels
