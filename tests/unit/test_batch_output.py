"""The file of result lines: only ever added to, and mended after a kill."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_batch_result_lines import BATCH, asked, failure, result
from worker.batch.output import NotThisBatch, Outputs, ResultFile
from worker.batch.result_lines import Written, ended

LINES = [
    ended(asked(number=number), failure() if number % 3 == 0 else result(text=f"Text {number}\n"))
    for number in range(1, 6)
]


def recovered(path: Path) -> list[Written]:
    """What a later run finds in the file, which it mends."""
    with ResultFile(path) as file:
        return list(file.recover(BATCH))


class TestMending:
    @given(st.integers(0, sum(len(line.content) for line in LINES)))
    def test_a_file_cut_anywhere_keeps_its_whole_lines(
        self, tmp_path_factory: pytest.TempPathFactory, cut: int
    ) -> None:
        """Half a line is cut off, and what is written next begins a line of its own."""
        path = tmp_path_factory.mktemp("output") / "out.jsonl"
        path.write_bytes(b"".join(line.content for line in LINES)[:cut])
        with ResultFile(path) as file:
            whole = list(file.recover(BATCH))
            file.append(LINES[len(whole) :])
        assert whole == LINES[: len(whole)]
        assert path.read_bytes() == b"".join(line.content for line in LINES)

    def test_zeros_at_the_end_are_cut_off(self, tmp_path: Path) -> None:
        """A crash of the machine can leave a size without its bytes."""
        path = tmp_path / "out.jsonl"
        path.write_bytes(LINES[0].content + bytes(512) + b"\n" + bytes(3))
        assert recovered(path) == LINES[:1]
        assert path.read_bytes() == LINES[0].content

    @pytest.mark.parametrize("stranger", [b"text\n", b"{}\n", b"\n"])
    def test_a_line_of_something_else_is_left_as_it_is(self, tmp_path: Path, stranger: bytes) -> None:
        """The file and the line are named, and nothing is cut off."""
        path = tmp_path / "out.jsonl"
        content = LINES[0].content + stranger + LINES[1].content[:9]
        path.write_bytes(content)
        with pytest.raises(NotThisBatch, match=r"out\.jsonl: line 2 "):
            recovered(path)
        assert path.read_bytes() == content

    def test_a_file_that_is_not_there_is_empty(self, tmp_path: Path) -> None:
        """And is there afterwards."""
        assert recovered(tmp_path / "out.jsonl") == []
        assert (tmp_path / "out.jsonl").read_bytes() == b""


class TestOutputs:
    def test_failures_go_to_their_own_file_where_there_is_one(self, tmp_path: Path) -> None:
        """Each line to one of them; and all of them are found again."""
        with ResultFile(tmp_path / "out") as results, ResultFile(tmp_path / "err") as errors:
            outputs = Outputs(results, errors)
            outputs.append(LINES)
            outputs.sync()
            assert sorted(line.number for line in outputs.recover(BATCH)) == [1, 2, 3, 4, 5]
        assert [line.number for line in recovered(tmp_path / "out")] == [1, 2, 4, 5]
        assert [line.number for line in recovered(tmp_path / "err")] == [3]

    def test_without_one_all_go_to_the_same(self, tmp_path: Path) -> None:
        """In the order in which they are given."""
        with ResultFile(tmp_path / "out") as results:
            Outputs(results).append(LINES)
        assert recovered(tmp_path / "out") == LINES

    def test_both_can_be_begun_anew(self, tmp_path: Path) -> None:
        """Nothing of what was there is left."""
        with ResultFile(tmp_path / "out") as results, ResultFile(tmp_path / "err") as errors:
            outputs = Outputs(results, errors)
            outputs.append(LINES)
            outputs.clear()
            outputs.append(LINES[:1])
        assert (recovered(tmp_path / "out"), recovered(tmp_path / "err")) == (LINES[:1], [])
