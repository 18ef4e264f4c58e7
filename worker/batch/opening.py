"""Whether a command begins a batch or goes on with one. Pure."""

from typing import Final

from worker.batch.journal import Facts, Terms

_WORDS: Final = {
    "input_sha256": "the input's content",
    "format": "--format",
    "prompt_column": "--prompt-column",
    "ignored_columns": "--ignore-column",
    "model": "--model",
    "max_tokens": "--max-tokens",
    "tenant": "--tenant",
    "keep_order": "--keep-order",
    "errors": "--errors",
    "redis": "Redis' address",
    "namespace": "the namespace",
}
"""The terms as people know them."""


class CannotGoOn(Exception):
    """What is there belongs to something else; the message says to what, and what to do."""


def to_go_on_with(
    facts: Facts | None, terms: Terms, *, resume: bool, output_is_empty: bool, errors_are_empty: bool
) -> Facts | None:
    """Return the batch that the command goes on with, by what a journal says; None where it is to begin one.

    Raises:
        CannotGoOn: it may do neither: a line could be run twice, or a stranger's file be lost.
    """
    if facts is None and not output_is_empty:
        raise CannotGoOn("is not empty, and no batch's journal is beside it: name another --output")
    if (facts is None or facts.terms.errors != terms.errors) and not errors_are_empty:
        raise CannotGoOn("has no errors in the file that --errors names, which is not empty: name another --errors")
    if facts is None or not resume:
        return None
    if differing := terms.differing(facts.terms):
        what = ", ".join(_WORDS[name] for name in differing)
        raise CannotGoOn(
            f"holds another batch ({what} differ): name another --output, or begin anew in this one with --no-resume"
        )
    return facts
