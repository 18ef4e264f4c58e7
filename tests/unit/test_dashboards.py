"""deploy/grafana and deploy/prometheus against what a worker really exports."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.exported import TRITON_ON_CPU, TRITON_ON_GPU, exported
from tests.promql import ANY, labels_of
from worker.metrics.families import FAMILIES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/metrics.md").read_text()
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
METRICS = exported()


def dashboard(path: Path) -> dict[str, Any]:
    """Return a dashboard as Grafana reads it."""
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every panel that shows something, with a name for the test."""
    for path in DASHBOARDS:
        for panel in dashboard(path)["panels"]:
            if panel["type"] != "row":
                yield f"{path.stem} {panel['id']}: {panel['title']}", panel


PANELS = dict(panels())


def without_variables(expression: str) -> str:
    """Return a panel's query as Grafana sends it, with anything in the place of its variables."""
    return re.sub(r"\$\w+", ANY, expression.replace("$__rate_interval", "5m"))


@pytest.mark.parametrize("panel", PANELS.values(), ids=list(PANELS))
def test_every_query_of_a_panel_asks_for_what_there_is(panel: dict[str, Any]) -> None:
    """Metrics, labels and their values exist, and its legend shows labels that the query gives."""
    for target in panel["targets"]:
        labels = labels_of(without_variables(target["expr"]), METRICS)
        assert {*re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])} <= labels
        assert target["datasource"]["uid"] == "${datasource}"
    assert panel["targets"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"].get("unit") or panel["type"] == "state-timeline"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_whole(path: Path) -> None:
    """Panels have ids of their own and do not lie on each other; variables that are used are defined, and asked of metrics that exist."""
    content = dashboard(path)
    ids = [panel["id"] for panel in content["panels"]]
    assert len(set(ids)) == len(ids)
    for one, other in combinations((panel["gridPos"] for panel in content["panels"]), 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"], (one, other)
    defined = {variable["name"] for variable in content["templating"]["list"]}
    used = {*re.findall(r"\$\{?(\w+)", json.dumps(content))} - {"__rate_interval", "__all"}
    assert used == defined
    for variable in content["templating"]["list"]:
        if variable["type"] == "query":
            (query,) = re.findall(r"^label_values\((.*), (\w+)\)$", variable["query"]["query"])
            assert query[1] in labels_of(without_variables(query[0]), METRICS)


def test_the_dashboard_shows_every_part_of_the_work() -> None:
    """Fleet, models, pools, errors, tokens and latency have a row each."""
    (path,) = DASHBOARDS
    rows = [panel["title"] for panel in dashboard(path)["panels"] if panel["type"] == "row"]
    assert rows == ["Fleet", "Models", "Pools", "Errors", "Tokens", "Latency"]


def test_every_family_is_shown_somewhere() -> None:
    """On a panel or in a rule; what nobody looks at need not be exported."""
    queries = " ".join(target["expr"] for panel in PANELS.values() for target in panel["targets"])
    queries += " ".join(rule["expr"] for rule in RULES)
    unseen = [family.name for family in FAMILIES if not re.search(rf"\b{family.name}(_bucket)?\b", queries)]
    assert unseen == []
    assert [name for name in TRITON_ON_GPU if name not in queries] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_rule_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    """Metrics, labels and their values exist; what its words name is a label of what it gives; they say what to do."""
    labels = labels_of(rule["expr"], METRICS)
    words = rule["annotations"]
    assert {*re.findall(r"\$labels\.(\w+)", words["summary"] + words["description"])} <= labels
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert words["summary"].endswith(".")
    assert len(words["description"]) > 60


def test_every_rule_is_made_to_fire_and_not_to_by_figures_alone() -> None:
    """In the file that promtool runs, whose series are those that a worker exports."""
    cases = yaml.safe_load((ROOT / "deploy/prometheus/rules.test.yml").read_text())["tests"]
    alerts = sorted(rule["alert"] for rule in RULES)
    silent = [test["alertname"] for case in cases for test in case.get("alert_rule_test", [])]
    firing = [
        name
        for case in cases
        for test in case.get("promql_expr_test", [])
        for name in re.findall(r'alertname="(\w+)"', test["expr"])
    ]
    assert (sorted(silent), sorted(firing)) == (alerts, alerts)
    for case in cases:
        for series in case["input_series"]:
            labels_of(re.sub(r'(instance|job)="\w+"', r'\1="any"', series["series"]), METRICS)


def test_rules_ask_for_nothing_of_tritons() -> None:
    """Whoever does not pass its metrics through has all alerts the same."""
    assert not [rule["alert"] for rule in RULES if re.search(r"\bnv_", rule["expr"])]


def test_the_page_says_which_alerts_look_at_which_family() -> None:
    """In the last column of its table."""
    rows = dict(re.findall(r"^\| `(speedinfer_[a-z_]+)` \|.*\| ([^|]*?) \|$", PAGE, re.MULTILINE))
    said = {family: {*re.findall(r"`(\w+)`", alerts)} for family, alerts in rows.items()}
    found = {
        family.name: {rule["alert"] for rule in RULES if re.search(rf"\b{family.name}\b", rule["expr"])}
        for family in FAMILIES
    }
    assert said == found


def test_the_page_lists_the_alerts() -> None:
    """With their severity, in the order of the rules."""
    rows = re.findall(r"^\| `(SpeedInfer\w+)` \| (\w+) \| .+ \|$", PAGE, re.MULTILINE)
    assert rows == [(rule["alert"], rule["labels"]["severity"]) for rule in RULES]


def test_the_table_of_tritons_families_names_none_twice() -> None:
    """A family is one that every Triton shows, or one that needs a GPU."""
    assert not TRITON_ON_CPU.keys() & TRITON_ON_GPU.keys()
