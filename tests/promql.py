"""Reads PromQL as far as our panels and rules go, and works out the labels of what an expression gives.

Strict: what it does not know is an error, and so is a metric or a label that does not exist, or two sides of an operator that could never
match. Values are Prometheus' business.
"""

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

TARGET_LABELS: Final = frozenset({"job", "instance"})
"""What Prometheus adds to everything it scrapes."""

AGGREGATIONS: Final = {"sum", "min", "max", "avg", "count"}
RANGE_FUNCTIONS: Final = {"rate", "increase"}
SET_OPERATORS: Final = {"and", "or", "unless"}
PRECEDENCE: Final = ({"or"}, {"and", "unless"}, {"==", "!=", "<=", "<", ">=", ">"}, {"+", "-"}, {"*", "/"})

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?)(?![0-9a-z_:])|(?P<range>\[(?:[0-9]+[smhd])\])
    |(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign>=~|!~|!=|==|<=|>=|[-+*/<>=(){},]))""",
    re.VERBOSE,
)

Labels = Mapping[str, frozenset[str] | None]
"""The values that each label may have; None is any."""

Metrics = Mapping[str, Labels]
"""The labels of each series by its name, without those of the target."""

ANY: Final = ".*"
"""What stands for a variable of a dashboard."""


class NotPromQL(Exception):
    """The expression cannot be read, or names what does not exist."""


@dataclass(frozen=True)
class Vector:
    """What an expression gives: series with these labels, or ranges of them."""

    labels: frozenset[str]
    is_range: bool = False


SCALAR: Final = None
Value = Vector | None


def labels_of(expression: str, metrics: Metrics) -> frozenset[str]:
    """Return the labels of what the expression gives; those of the target are among them where it keeps them.

    Raises:
        NotPromQL: something in it does not exist or can give nothing.
    """
    parser = _Parser(expression, metrics)
    value = parser.expression(0)
    parser.expect("")
    if value is SCALAR or value.is_range:
        raise NotPromQL(f"{expression}: gives no series")
    return value.labels


class _Parser:
    def __init__(self, expression: str, metrics: Metrics) -> None:
        self._expression = expression
        self._metrics = metrics
        self._tokens = [*_tokens(expression), ("", "")]
        self._at = 0

    def expect(self, text: str) -> None:
        """Take one token, which must be this."""
        if self._next() != text:
            raise self._error(f"{text or 'its end'} is missing")

    def expression(self, level: int) -> Value:
        """Read operators of this precedence and above."""
        if level == len(PRECEDENCE):
            return self._unary()
        left = self.expression(level + 1)
        while self._peek() in PRECEDENCE[level]:
            operator = self._next()
            on, ignoring = self._matching()
            left = self._matched(operator, left, self.expression(level + 1), on, ignoring)
        return left

    def _matched(
        self, operator: str, left: Value, right: Value, on: frozenset[str] | None, ignoring: frozenset[str] | None
    ) -> Value:
        for side in (left, right):
            if side is not SCALAR and side.is_range:
                raise self._error(f"a range beside {operator}")
        if left is SCALAR or right is SCALAR:
            if operator in SET_OPERATORS or on is not None or ignoring is not None:
                raise self._error(f"{operator} of a number")
            return left if right is SCALAR else right
        if on is not None:
            self._among(on, left.labels)
            self._among(on, right.labels)
        elif left.labels - (ignoring or frozenset()) != right.labels - (ignoring or frozenset()):
            raise self._error(
                f"the sides of {operator} have other labels: {sorted(left.labels)}, {sorted(right.labels)}"
            )
        if operator in SET_OPERATORS or operator in PRECEDENCE[2]:
            return left
        return Vector(left.labels - (ignoring or frozenset()) if on is None else on)

    def _matching(self) -> tuple[frozenset[str] | None, frozenset[str] | None]:
        if self._peek() == "on":
            self._next()
            return self._label_list(), None
        if self._peek() == "ignoring":
            self._next()
            return None, self._label_list()
        return None, None

    def _unary(self) -> Value:
        kind, text = self._tokens[self._at]
        if text == "(":
            self._next()
            value = self.expression(0)
            self.expect(")")
            return value
        if kind == "number":
            self._next()
            return SCALAR
        if kind != "name":
            raise self._error(f"{text or 'the end'} where a value should be")
        self._next()
        if text in AGGREGATIONS:
            return self._aggregated()
        if self._peek() == "(":
            return self._called(text)
        return self._selected(text)

    def _aggregated(self) -> Value:
        by: frozenset[str] = frozenset()
        if self._peek() == "by":
            self._next()
            by = self._label_list()
        self.expect("(")
        inner = self._series()
        self.expect(")")
        self._among(by, inner.labels)
        return Vector(by)

    def _called(self, function: str) -> Value:
        self.expect("(")
        if function == "absent":
            self._series()
            result = Vector(frozenset())
        elif function in RANGE_FUNCTIONS:
            inner = self.expression(0)
            if inner is SCALAR or not inner.is_range:
                raise self._error(f"{function} of what is no range")
            result = Vector(inner.labels)
        elif function == "histogram_quantile":
            if self.expression(0) is not SCALAR:
                raise self._error("a quantile that is no number")
            self.expect(",")
            inner = self._series()
            self._among(frozenset({"le"}), inner.labels)
            result = Vector(inner.labels - {"le"})
        else:
            raise self._error(f"{function} is not known")
        self.expect(")")
        return result

    def _series(self) -> Vector:
        value = self.expression(0)
        if value is SCALAR or value.is_range:
            raise self._error("no series where some should be")
        return value

    def _selected(self, metric: str) -> Vector:
        if metric not in self._metrics:
            raise self._error(f"there is no metric {metric}")
        labels = self._metrics[metric].keys() | TARGET_LABELS
        if self._peek() == "{":
            self._next()
            while self._peek() != "}":
                self._match(metric, labels)
                if self._peek() == ",":
                    self._next()
            self._next()
        is_range = self._tokens[self._at][0] == "range"
        if is_range:
            self._next()
        return Vector(frozenset(labels), is_range)

    def _match(self, metric: str, labels: AbstractSet[str]) -> None:
        label, operator, (kind, text) = self._next(), self._next(), self._tokens[self._at]
        self._among(frozenset({label}), labels)
        if operator not in {"=", "!=", "=~", "!~"} or kind != "text":
            raise self._error(f"{label} is not matched with anything")
        self._next()
        values, asked = self._metrics[metric].get(label), text[1:-1]
        wanted = asked.split("|") if operator.endswith("~") else [asked]
        if values is not None and asked != ANY and (strangers := {*wanted} - values):
            raise self._error(f"{label} of {metric} is never {', '.join(sorted(strangers))}")

    def _label_list(self) -> frozenset[str]:
        self.expect("(")
        names: set[str] = set()
        while self._peek() != ")":
            if self._tokens[self._at][0] != "name":
                raise self._error("no label where one should be")
            names.add(self._next())
            if self._peek() == ",":
                self._next()
        self._next()
        return frozenset(names)

    def _among(self, names: frozenset[str], labels: AbstractSet[str]) -> None:
        if strangers := names - labels:
            raise self._error(f"{', '.join(sorted(strangers))}: no such label among {', '.join(sorted(labels))}")

    def _peek(self) -> str:
        return self._tokens[self._at][1]

    def _next(self) -> str:
        text = self._tokens[self._at][1]
        self._at += text != "" or self._at + 1 < len(self._tokens)
        return text

    def _error(self, reason: str) -> NotPromQL:
        return NotPromQL(f"{self._expression}: {reason}")


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(expression.rstrip())
    while at < end:
        found = _TOKEN.match(expression, at)
        if found is None:
            raise NotPromQL(f"{expression}: not known from {expression[at : at + 20]!r} on")
        at = found.end()
        yield str(found.lastgroup), found[str(found.lastgroup)]
