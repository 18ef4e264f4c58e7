"""Another server's metrics as part of our scrape: each series with one more label, all of it or, where a line is no metric, none. Pure."""

import re
from collections.abc import Iterator
from typing import Final

PASSED: Final = ("nv_", "vllm:")
"""What the names of Triton's metrics begin with: its own, and those of its vLLM backend."""

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_VALUE = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|Inf|NaN)"
_SAMPLE: Final = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL})(?:,{_LABEL})*,?)?\}})? ({_VALUE})(?: -?[0-9]+)?")
_COMMENT: Final = re.compile(rf"# (?:HELP ({_NAME}) .*|HELP ({_NAME})|TYPE ({_NAME}) [a-z]+)")


class NoMetrics(Exception):
    """The text is not what a server shows to Prometheus."""


def labelled(text: str, name: str, value: str) -> str:
    """Return the lines of the PASSED families, each series with the label ``name="value"``; timestamps are left out.

    Raises:
        NoMetrics: a line is none of the text format; one such line would cost the whole scrape.
    """
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return "".join(_labelled(text, name, f'{name}="{escaped}"'))


def _labelled(text: str, name: str, label: str) -> Iterator[str]:
    for line in text.split("\n"):  # splitlines knows ends of lines that may stand in a label
        if not line.strip() or (line.startswith("#") and not line.startswith(("# HELP", "# TYPE"))):
            continue
        if comment := _COMMENT.fullmatch(line):
            if next(filter(None, comment.groups())).startswith(PASSED):
                yield f"{line}\n"
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            raise NoMetrics
        family, labels, value = sample.groups()
        if family.startswith(PASSED):
            yield f"{family}{{{label}{_others(labels, name)}}} {value}\n"


def _others(labels: str | None, name: str) -> str:
    """Return the labels that were there, with a comma before; one of our name gets another, as Prometheus does it."""
    if not labels:
        return ""
    return "," + re.sub(rf"(^|,){name}=", rf"\1exported_{name}=", labels.rstrip(","))
