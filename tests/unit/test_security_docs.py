"""docs/security.md and docs/deployment.md say what is there: each user, and each command of Celery's."""

import re
from typing import Final

from celery.worker import control

from tests.acceptance.fleet import ROOT
from tests.guarded import ROLES
from worker.remote_control import READ

SECURITY: Final = (ROOT / "docs" / "security.md").read_text()
DEPLOYMENT: Final = (ROOT / "docs" / "deployment.md").read_text()


def test_each_user_has_a_row() -> None:
    """And each row a user."""
    rows = re.findall(r"^\| (`speedinfer-[^|]*) \|", SECURITY, re.MULTILINE)
    assert sorted(re.findall(r"`speedinfer-(\w+)`", " ".join(rows))) == sorted(ROLES)


def test_what_is_answered_is_listed() -> None:
    """Every command of Celery's that reads; the refused ones are named as such, or are of their kind."""
    rows = re.findall(r"^\| ([^|]*) \| (answered|refused)", DEPLOYMENT, re.MULTILINE)
    answered = {name for row, word in rows if word == "answered" for name in re.findall(r"\w+", row)}
    refused = {name for row, word in rows if word == "refused" for name in re.findall(r"\w+", row)}
    assert answered >= READ
    assert not refused & READ
    assert {"shutdown", "revoke", "terminate", "objgraph", "enable_events"} <= refused & set(control.Panel.data)
