"""deploy/prometheus by Prometheus' own tool, where it is installed."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.acceptance.prometheus import INSTALL, PROMTOOL, ROOT

DEPLOYED = ROOT / "deploy/prometheus"

pytestmark = pytest.mark.skipif(not PROMTOOL, reason=INSTALL.replace("no prometheus", "no promtool"))


def promtool(*words: str | Path) -> str:
    """Run it, and return what it says; it must be content."""
    ended = subprocess.run([str(PROMTOOL), *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_rules_are_valid() -> None:
    """Each of them."""
    assert "SUCCESS" in promtool("check", "rules", "--lint=all", "--lint-fatal", DEPLOYED / "rules.yml")


def test_every_rule_fires_when_it_should_and_not_otherwise() -> None:
    """By figures alone."""
    assert "SUCCESS" in promtool("test", "rules", DEPLOYED / "rules.test.yml")


def test_every_query_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    """As rules, since those are what it can check."""
    dashboard = json.loads((ROOT / "deploy/grafana/speedinfer.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    plain = [re.sub(r"\$\w+", ".*", query.replace("$__rate_interval", "5m")) for query in queries]
    rules = [{"record": f"panel:query:{n}", "expr": query} for n, query in enumerate(plain)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool("check", "rules", tmp_path / "rules.yml")
