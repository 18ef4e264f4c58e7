"""What the tests' own instruments promise: the wait, and the record of what reached a model."""

import json
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.witness import Witness


def note(event: str, request_id: str, at: float) -> str:
    """One line as a model writes it."""
    record = {"event": event, "at": at, "request_id": request_id, "model": "m", "prompt": request_id}
    return json.dumps({**record, "prompt_sha256": "", "options": {}, "parameters": {}}) + "\n"


def test_a_request_is_served_from_its_start_to_its_end(tmp_path: Path) -> None:
    """Starts and ends are paired by request id; what never ended has no end, and a half-written line is no record."""
    file = tmp_path / "witness"
    file.write_text(note("started", "a", 1) + note("started", "b", 2) + note("finished", "a", 3) + '{"event":"star')

    served = Witness(file).served()

    assert [(record.request_id, record.started_at, record.finished_at) for record in served] == [
        ("a", 1, 3),
        ("b", 2, None),
    ]
    assert Witness(file).prompts() == ["a", "b"]
    assert Witness(file).count("another model") == 0


def test_the_same_request_id_twice_is_two_requests(tmp_path: Path) -> None:
    """A job that was really sent twice is seen twice."""
    file = tmp_path / "witness"
    file.write_text(note("started", "a", 1) + note("finished", "a", 2) + note("started", "a", 3))

    assert [record.finished_at for record in Witness(file).served()] == [2, None]


@pytest.mark.parametrize(
    ("spans", "most"), [([(1, 2), (2, 3)], 1), ([(1, 3), (2, 4), (3, 5)], 2), ([(1, 9), (2, 8), (3, 7)], 3), ([], 0)]
)
def test_overlap_counts_those_served_at_one_moment(tmp_path: Path, spans: list[tuple[int, int]], most: int) -> None:
    """One that ends when the next begins does not overlap it."""
    file = tmp_path / "witness"
    file.write_text(
        "".join(
            note("started", str(number), start) + note("finished", str(number), end)
            for number, (start, end) in enumerate(spans)
        )
    )

    assert Witness(file).most_at_once() == most


def test_nothing_was_served_before_the_first_request(tmp_path: Path) -> None:
    """A witness without a file has seen nothing; clearing it makes it so again."""
    witness = Witness(tmp_path / "witness")
    assert witness.served() == []

    witness.path.write_text(note("started", "a", 1))
    witness.clear()

    assert witness.served() == []


def test_waiting_returns_the_value_or_says_what_it_waited_for() -> None:
    """A true value is handed back; a wait in vain names the condition and what was seen last."""
    values = iter([0, "", "there"])
    assert wait_until(lambda: next(values), description="it is there", interval=0) == "there"

    with pytest.raises(AssertionError, match="until it rains; last seen: 0"):
        wait_until(lambda: 0, description="it rains", timeout=0, interval=0)
