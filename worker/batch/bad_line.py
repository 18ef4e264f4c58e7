"""A line of the input of which no job can be made."""

from typing import Final

INVALID_LINE: Final = "invalid_line"
"""The code of a line that cannot be read, or does not say what a job needs."""


class BadLine(Exception):
    """No job can be made of the line; the message says why and never quotes the line.

    ``code`` is that of its error line. ``detail`` may hold words of a chat template, so it is for the error line alone. ``option`` is
    the command's option that would have given what the line lacks, empty where none would.
    """

    def __init__(self, message: str, *, code: str = INVALID_LINE, detail: str = "", option: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.detail = detail
        self.option = option
