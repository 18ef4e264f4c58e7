"""The input of a batch as numbered records: JSON lines and CSV, whatever is in them."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.batch.bad_line import BadLine
from worker.batch.lines import Record, read_objects
from worker.batch.table import Columns, WrongTable, read_rows

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON_VALUES, max_size=4)
CELLS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


def objects(content: bytes, longest: int = 1000) -> list[Record]:
    """The records of JSON lines."""
    return list(read_objects(io.BytesIO(content), longest))


def rows(content: bytes | str, longest: int = 1000, **columns: Any) -> list[Record]:
    """The records of a table."""
    raw = content if isinstance(content, bytes) else content.encode()
    return list(read_rows(io.BytesIO(raw), Columns(**columns), longest))


def words(records: list[Record]) -> list[tuple[int, Any]]:
    """Numbers and contents; of a bad line, its message."""
    return [(r.number, r.content.message if isinstance(r.content, BadLine) else r.content) for r in records]


class TestJsonLines:
    @settings(max_examples=40)
    @given(st.lists(OBJECTS, max_size=6), st.sampled_from(["\n", "\r\n", "\n\n", " \n"]), st.booleans())
    def test_each_object_is_a_record(self, contents: list[dict[str, Any]], line_break: str, ensure_ascii: bool) -> None:
        """With whatever line breaks, also a last line without one; what is in a string breaks no line."""
        text = line_break.join(json.dumps(content, ensure_ascii=ensure_ascii) for content in contents)
        assert [record.content for record in objects(text.encode(), 100_000)] == contents

    def test_numbers_are_those_of_the_lines_and_blank_ones_count(self) -> None:
        """An editor shows the same number."""
        assert words(objects(b'{"a":1}\n\n \t\n{"b":2}')) == [(1, {"a": 1}), (4, {"b": 2})]

    @given(st.binary(max_size=80))
    def test_anything_else_is_a_bad_line_and_ends_nothing(self, garbage: bytes) -> None:
        """The good line behind it is read, whatever stands before."""
        bad, good = objects(b"x" + garbage.replace(b"\n", b"") + b'\n{"a":1}\n', longest=60)
        assert isinstance(bad.content, BadLine)
        assert good == Record(2, {"a": 1})

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (b'{"a":', "the line is not JSON"),
            (b'{"a": NaN}', "the line is not JSON"),
            (b'{"a": "\\ud83d"}', "the line is not JSON"),
            (b'{"a": "\xff"}', "the line is not JSON"),
            (b"[1]", "the line is not a JSON object"),
            (b'"text"', "the line is not a JSON object"),
            (b'{"a": "' + b"x" * 100 + b'"}', "the line is over 50 bytes"),
        ],
    )
    def test_what_is_wrong_is_said(self, line: bytes, message: str) -> None:
        """Without a word of the line itself."""
        assert words(objects(line + b'\n{"b":2}', longest=50)) == [(1, message), (2, {"b": 2})]

    def test_a_byte_order_mark_is_no_part_of_the_first_line(self) -> None:
        """As some editors leave one."""
        assert words(objects(b'\xef\xbb\xbf{"a":1}\n')) == [(1, {"a": 1})]
        assert objects(b"\xef\xbb\xbf") == []


class TestTables:
    @given(
        st.lists(st.tuples(CELLS, CELLS), max_size=6),
        st.sampled_from(["\n", "\r\n"]),
    )
    def test_each_row_is_a_record_with_its_texts_as_they_are(
        self, pairs: list[tuple[str, str]], line_break: str
    ) -> None:
        """Quotes, commas and line breaks within a cell are its own, and the number is that of the row's first line."""
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, lineterminator=line_break, quoting=csv.QUOTE_ALL)
        writer.writerow(["custom_id", "prompt"])
        starts = []
        for pair in pairs:
            starts.append(stream.getvalue().count("\n") + 1)
            writer.writerow(pair)
        records = rows(stream.getvalue(), 100_000)
        assert [record.content for record in records] == [
            {"custom_id": custom_id, "prompt": prompt} for custom_id, prompt in pairs
        ]
        assert [record.number for record in records] == starts

    def test_numbers_and_lists_are_read_and_empty_cells_say_nothing(self) -> None:
        """A cell of a parameter is JSON, or else text; the prompt is always text."""
        table = 'prompt,max_tokens,temperature,stop,model\n1,16,0.5,"[""."", "";""]",\n2,,,END,m\n'
        assert words(rows(table)) == [
            (2, {"prompt": "1", "max_tokens": 16, "temperature": 0.5, "stop": [".", ";"]}),
            (3, {"prompt": "2", "stop": "END", "model": "m"}),
        ]

    @pytest.mark.parametrize("cell", ["NaN", "-Infinity", "[" * 5000, "[" * 990 + "]" * 990, "9" * 5000])
    def test_a_cell_that_is_no_json_is_text_and_ends_nothing(self, cell: str) -> None:
        """However deeply it is nested, or long."""
        assert words(rows(f"prompt,stop\n1,{cell}\n2,\n", 10_000)) == [
            (2, {"prompt": "1", "stop": cell}),
            (3, {"prompt": "2"}),
        ]

    def test_columns_can_be_named_otherwise_or_left_out(self) -> None:
        """Whoever has a table does not have to change it."""
        table = "\ufeffQuestion , category\nWhy?,science\n"
        assert words(rows(table, prompt="Question", ignored=frozenset({"category"}))) == [(2, {"prompt": "Why?"})]

    @pytest.mark.parametrize(
        ("table", "words_"),
        [
            ("", "no column prompt"),
            ("question\nWhy?\n", "--prompt-column"),
            ("prompt,category\n", "--ignore-column category"),
            ("prompt,model,model\n", "the column model twice"),
            (b"prompt,\xff\n", "not UTF-8"),
            ('"prompt\n', "the heading is not CSV"),
        ],
    )
    def test_a_heading_that_cannot_be_used_is_refused(self, table: bytes | str, words_: str) -> None:
        """Before any row: what is wrong with it is wrong with every row."""
        with pytest.raises(WrongTable, match=words_):
            rows(table)

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            (b"a,b,c", "the row has 3 cells, and the heading 2"),
            (b"a", "the row has 1 cells, and the heading 2"),
            (b'"a"b,c', "the row is not CSV"),
            (b"\xff,b", "the row is too long, or not UTF-8"),
            (b"x" * 200 + b",b", "the row is too long, or not UTF-8"),
        ],
    )
    def test_a_bad_row_is_a_bad_line_and_the_rest_goes_on(self, row: bytes, message: str) -> None:
        """One row more or less does not shift those behind it."""
        table = b"prompt,model\n1,m\n" + row + b"\n\n2,m\n"
        assert words(rows(table, longest=100)) == [
            (2, {"prompt": "1", "model": "m"}),
            (3, message),
            (5, {"prompt": "2", "model": "m"}),
        ]

    def test_a_quote_that_is_never_closed_does_not_take_the_whole_file_into_memory(self) -> None:
        """It ends at the longest a row may be, as a bad line."""
        table = b'prompt\n"never closed\n' + b"x" * 90 + b"\n" + b"y\n" * 200
        first, *rest = rows(table, longest=100)
        assert isinstance(first.content, BadLine)
        assert (first.number, rest[-1]) == (2, Record(203, {"prompt": "y"}))
