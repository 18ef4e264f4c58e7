"""What a batch remembers of itself, through any kill; and whether a command may go on with it."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.batch.journal import Facts, Journal, Terms, UnusableJournal, replay
from worker.batch.opening import CannotGoOn, to_go_on_with

TERMS = Terms(
    input_sha256="00ff",
    format="csv",
    prompt_column="prompt",
    ignored_columns=("a", "b"),
    model="acme/model-1",
    max_tokens=8,
    tenant=None,
    keep_order=True,
    errors="errors.jsonl",
    redis="redis://127.0.0.1:6379/0",
    namespace="speedinfer",
)
BEGUN = Facts("batch_00ff", 1_000, TERMS, seen_at_ms=1_000)

SENDINGS = st.tuples(st.integers(1, 10**9), st.integers(1_000, 2**53))
TEMPLATES = st.tuples(st.sampled_from(["acme/a", "acme/b"]), st.text(max_size=20))


def write(path: Path, said: list[Any]) -> Facts:
    """Write a journal with these sendings and templates; return what it should say then."""
    facts = BEGUN
    journal = Journal.open(path)
    journal.begin(facts)
    for one, other in said:
        if isinstance(one, int):
            journal.will_send(one, other)
            facts = replace(facts, sent=max(facts.sent, one), seen_at_ms=other)
        else:
            kept = str(journal.template_for(one, partial(str, other)))
            facts = replace(facts, templates={one: kept, **facts.templates})
    journal.close()
    return facts


class TestReplaying:
    @given(st.lists(SENDINGS | TEMPLATES, max_size=8))
    def test_what_was_written_is_read(self, tmp_path_factory: pytest.TempPathFactory, said: list[Any]) -> None:
        """The highest line, the last time, and the first template of each model."""
        path = tmp_path_factory.mktemp("journal") / "out.journal"
        facts = write(path, said)
        assert replay(path.read_bytes()) == (facts, path.stat().st_size)

    @given(st.lists(SENDINGS | TEMPLATES, max_size=5), st.data())
    def test_a_kill_costs_at_most_the_line_it_cuts(
        self, tmp_path_factory: pytest.TempPathFactory, said: list[Any], data: st.DataObject
    ) -> None:
        """Cut anywhere, a journal says what its whole lines say, and what is written on follows them."""
        path = tmp_path_factory.mktemp("journal") / "out.journal"
        write(path, said)
        content = path.read_bytes()
        cut = data.draw(st.integers(0, len(content)))
        whole = content[: content.rfind(b"\n", 0, cut) + 1]
        facts, length = replay(whole)
        assert replay(content[:cut]) == (facts, length) == (facts, len(whole))

        path.write_bytes(content[:cut])
        journal = Journal.open(path)
        assert journal.facts == facts
        if facts is None:
            assert path.read_bytes() == b""
        else:
            journal.will_send(7, 9)
            assert replay(path.read_bytes())[0] == replace(facts, sent=max(7, facts.sent), seen_at_ms=9)
        journal.close()

    def test_sending_a_million_lines_makes_it_no_longer(self, tmp_path: Path) -> None:
        """How far the batch is sent is renewed in its place, which no page's end divides."""
        path = tmp_path / "out.journal"
        write(path, [("acme/a", "x" * 1000), *((number, 2_000) for number in range(1, 2_000))])
        lines = path.read_bytes().splitlines(keepends=True)
        assert len(lines) == 3
        assert {len(line) % 64 for line in lines} == {0}
        assert len(lines[-1]) == 64

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"text\n", "is not one"),
            (b"[]\n", "is not one"),
            (b"text without a line's end", "is not one"),
            (b'{"prompt": "of a line without an end"}', "is not one"),
            (b'{"version": 1}\n', "is not one"),
            (b'{"version": 2, "batch_id": "b"}\n', "of version 2"),
        ],
    )
    def test_what_is_no_journal_is_said_to_be_none(self, content: bytes, words: str) -> None:
        """Nothing of it is guessed at."""
        with pytest.raises(UnusableJournal, match=words):
            replay(content)

    def test_one_command_at_a_time_has_the_journal(self, tmp_path: Path) -> None:
        """Two would write every line twice."""
        journal = Journal.open(tmp_path / "out.journal")
        with pytest.raises(UnusableJournal, match="in use"):
            Journal.open(tmp_path / "out.journal")
        journal.close()
        Journal.open(tmp_path / "out.journal").close()

    def test_a_new_batch_takes_the_place_of_the_old_one(self, tmp_path: Path) -> None:
        """Templates included."""
        path = tmp_path / "out.journal"
        write(path, [("acme/a", "old"), (5, 2_000)])
        journal = Journal.open(path)
        new = replace(BEGUN, batch_id="batch_11")
        journal.begin(new)
        assert journal.template_for("acme/a", lambda: None) is None
        journal.close()
        assert replay(path.read_bytes())[0] == new


def decided(facts: Facts | None = BEGUN, terms: Terms = TERMS, **changes: Any) -> Facts | None:
    """The batch to go on with, where both files hold something."""
    there = {"resume": True, "output_is_empty": False, "errors_are_empty": False, **changes}
    return to_go_on_with(facts, terms, **there)


class TestGoingOn:
    def test_the_same_command_goes_on(self) -> None:
        """Whether or not anything is in the files."""
        assert decided() == BEGUN
        assert decided(output_is_empty=True, errors_are_empty=True) == BEGUN

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"input_sha256": "11"}, "the input's content"),
            ({"max_tokens": 9}, "--max-tokens"),
            ({"model": None, "tenant": "t"}, "--model, --tenant"),
            ({"keep_order": False}, "--keep-order"),
            ({"namespace": "other"}, "the namespace"),
            ({"redis": "redis://elsewhere"}, "Redis' address"),
            ({"ignored_columns": ()}, "--ignore-column"),
        ],
    )
    def test_another_command_does_not(self, change: dict[str, Any], words: str) -> None:
        """It is told what differs: to send other jobs under the same ids would mix two batches."""
        with pytest.raises(CannotGoOn, match=words):
            decided(terms=replace(TERMS, **change))

    def test_a_new_batch_begins_where_nothing_is(self) -> None:
        """With or without --resume."""
        assert decided(None, output_is_empty=True, errors_are_empty=True) is None
        assert decided(None, resume=False, output_is_empty=True, errors_are_empty=True) is None

    def test_begun_anew_in_the_same_files(self) -> None:
        """Where that was asked for, also by another command."""
        assert decided(resume=False) is None
        assert decided(terms=replace(TERMS, max_tokens=9), resume=False) is None

    @pytest.mark.parametrize("resume", [True, False])
    def test_a_file_that_no_batch_wrote_is_never_touched(self, resume: bool) -> None:
        """Neither as the output nor for the errors, not even to begin anew."""
        with pytest.raises(CannotGoOn, match="--output"):
            decided(None, resume=resume)
        with pytest.raises(CannotGoOn, match="--errors"):
            decided(None, resume=resume, output_is_empty=True)
        with pytest.raises(CannotGoOn, match="--errors"):
            decided(terms=replace(TERMS, errors="else.jsonl"), resume=resume)

    def test_every_term_has_its_words(self) -> None:
        """A term that differs can be named to people."""
        assert TERMS.differing(TERMS) == []
        for name in Terms.__slots__:
            other: Any = ("different",)
            with pytest.raises(CannotGoOn):
                decided(terms=replace(TERMS, **{name: other}), errors_are_empty=True)
