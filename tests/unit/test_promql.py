"""The reader that the tests of panels and rules stand on: what it lets through, and what it stops."""

import pytest

from tests.promql import Labels, NotPromQL, labels_of

METRICS: dict[str, Labels] = {
    "a": {"model": None, "code": frozenset({"ok", "bad"})},
    "b": {"model": None},
    "up": {},
    "h_bucket": {"model": None, "le": None},
}
TARGET = {"job", "instance"}


@pytest.mark.parametrize(
    ("expression", "labels"),
    [
        ("a", {"model", "code", *TARGET}),
        ('a{code="ok", model=~".*"}', {"model", "code", *TARGET}),
        ('rate(a{code!~"ok|bad"}[5m])', {"model", "code", *TARGET}),
        ("sum(a)", set()),
        ("sum by (model) (rate(a[5m])) / sum by (model) (rate(b[10m])) > 0.1", {"model"}),
        ("max by (model) (b) > 0 unless on (model) sum by (model, code) (a) == 1", {"model"}),
        ("histogram_quantile(0.99, sum by (le, model) (rate(h_bucket[1m])))", {"model"}),
        ("absent(up)", set()),
        ("1 - avg by (job) (up)", {"job"}),
        ("a + ignoring (code) 2 * b", {"model", *TARGET}),
        ("b and on (instance) up", {"model", *TARGET}),
        ("(b)", {"model", *TARGET}),
    ],
)
def test_the_labels_of_an_expression_are_worked_out(expression: str, labels: set[str]) -> None:
    """As Prometheus would have them."""
    assert labels_of(expression, METRICS) == labels


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("c", "no metric c"),
        ('a{reason="x"}', "reason: no such label"),
        ('a{code="odd"}', "code of a is never odd"),
        ('a{code=~"ok|odd"}', "code of a is never odd"),
        ("a{code}", "code is not matched"),
        ("sum by (code) (b)", "code: no such label"),
        ("sum by (model) (a) / sum(b)", "have other labels"),
        ("a / b", "have other labels"),
        ("sum by (model) (a) unless on (code) b", "code: no such label"),
        ("rate(a)", "what is no range"),
        ("a[5m]", "gives no series"),
        ("sum(a[5m])", "no series where"),
        ("1 + 1", "gives no series"),
        ("a and 1", "of a number"),
        ("sum without (model) (a)", "( is missing"),
        ("topk(5, a)", "topk is not known"),
        ("histogram_quantile(0.5, sum by (model) (rate(h_bucket[1m])))", "le: no such label"),
        ("sum(a", ") is missing"),
        ("a b", "its end is missing"),
        ("a > ", "the end where a value"),
        ("a % 2", "not known from"),
        ('a{code="ok}', "not known from"),
        ("rate(a[5 minutes])", "not known from"),
        ("", "the end where a value"),
    ],
)
def test_what_does_not_exist_or_cannot_match_is_refused(expression: str, complaint: str) -> None:
    """With what is wrong with it; a form that it does not know is refused too."""
    with pytest.raises(NotPromQL) as caught:
        labels_of(expression, METRICS)
    assert complaint in str(caught.value)
