"""What commands write: nothing that a terminal would obey, and nothing that two contents share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.cli.output import duration, escaped, readable, shown


class TestEscaping:
    @given(st.binary())
    def test_escaped_bytes_are_printable_and_can_be_told_apart(self, content: bytes) -> None:
        """One line without control characters, from which the very bytes can be had again."""
        text = escaped(content)
        assert text.isprintable()
        unescaped = text.encode("latin-1", "backslashreplace").decode("unicode_escape")
        # \xNN stands both for a byte that is no UTF-8 and for a control character, which is one byte in UTF-8 too.
        assert _bytes_of(unescaped, content) == content

    @given(st.text())
    def test_readable_text_keeps_its_lines_and_has_no_other_control_characters(self, text: str) -> None:
        """A generated text is shown as text, but cannot drive the terminal."""
        assert all(character in "\n\t" or character.isprintable() for character in readable(text))
        assert readable(text).count("\n") == text.count("\n")

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            (b"plain [red]", "plain [red]"),
            ("Grüße 你好 🙂", "Grüße 你好 🙂"),
            (b"\x1b[2J\r\n\x00", r"\x1b[2J\r\n\x00"),
            (b"\xff\xc3", r"\xff\xc3"),
            ("\u202eevil\u200b", r"\u202eevil\u200b"),
            (r"C:\n", r"C:\\n"),
        ],
    )
    def test_what_is_escaped(self, content: bytes | str, text: str) -> None:
        """Control characters, direction marks, broken UTF-8 and the backslash itself."""
        assert escaped(content) == text

    @pytest.mark.parametrize(("cell", "text"), [(None, "-"), ("", "-"), (0, "0"), ("a\nb", r"a\nb")])
    def test_cells_are_never_empty(self, cell: object, text: str) -> None:
        """What is unknown is a dash, and zero is not unknown."""
        assert shown(cell) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, None),
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (90_000, "90.0 s"),
        (300_000, "5 min"),
        (9e6, "2 h"),
        (3e8, "3 d"),
    ],
)
def test_durations_are_for_people(milliseconds: float | None, text: str | None) -> None:
    """Few digits, in the unit that fits."""
    assert duration(milliseconds) == text


def _bytes_of(unescaped: str, content: bytes) -> bytes:
    """The bytes of the text, reading a character below 256 as the byte that the content has at its place, if it has."""
    made = b""
    for character in unescaped:
        encoded = character.encode("utf-8", "surrogatepass")
        raw = bytes([ord(character)]) if ord(character) < 256 else encoded
        made += encoded if content[len(made) :].startswith(encoded) else raw
    return made
