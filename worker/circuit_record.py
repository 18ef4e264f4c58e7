"""A circuit as it stands in Redis: a hash of texts. Pure.

What others may read stands in docs/circuits.md; the rest is what the transitions need. ``version`` is the script's
(worker/lua/store_if_unchanged.lua).
"""

from collections.abc import Mapping

from tasks import rfc3339
from worker.circuit import Circuit, Rule, State
from worker.circuit_calls import Failures, Window


def to_fields(circuit: Circuit) -> dict[str, str]:
    """Return every field, empty where there is nothing to say."""
    return {
        "state": circuit.state,
        "reason": circuit.reason,
        "failures": str(circuit.row.total),
        "opened_at": _time(circuit.opened_ms),
        "retry_at": _time(circuit.retry_ms),
        "rule": circuit.rule or "",
        "changed_at": _time(circuit.changed_ms),
        "forced": circuit.state if circuit.forced else "",
        "forced_reason": circuit.reason if circuit.forced else "",
        "forced_by": circuit.by,
        "opens": str(circuit.opens),
        "failures_by_tenant": _pairs(circuit.row.by_tenant),
        "failed_at": _time(circuit.failed_ms),
        "window": _pairs(circuit.window.runs),
        "texts": _pairs(circuit.texts),
        "successes": str(circuit.successes),
        "proven_at": _time(circuit.proven_ms),
    }


def from_fields(fields: Mapping[bytes, bytes]) -> Circuit:
    """Return the circuit, a closed one for no fields or what is none: it opens again if there is reason to."""
    texts = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
    try:
        return _read(texts) if texts else Circuit()
    except ValueError:
        return Circuit()


def _read(fields: Mapping[str, str]) -> Circuit:
    return Circuit(
        state=State(fields.get("state", State.CLOSED)),
        reason=fields.get("reason", ""),
        rule=Rule(fields["rule"]) if fields.get("rule") else None,
        opened_ms=_ms(fields.get("opened_at")),
        retry_ms=_ms(fields.get("retry_at")),
        opens=int(fields.get("opens") or 0),
        changed_ms=_ms(fields.get("changed_at")) or 0,
        row=Failures(int(fields.get("failures") or 0), _read_pairs(fields.get("failures_by_tenant"))),
        failed_ms=_ms(fields.get("failed_at")) or 0,
        window=Window(_read_pairs(fields.get("window"))),
        texts=_read_pairs(fields.get("texts")),
        successes=int(fields.get("successes") or 0),
        proven_ms=_ms(fields.get("proven_at")),
        forced=bool(fields.get("forced")),
        by=fields.get("forced_by", ""),
    )


def _time(at_ms: int | None) -> str:
    return rfc3339.from_ms(at_ms) if at_ms else ""


def _ms(text: str | None) -> int | None:
    return rfc3339.to_ms(rfc3339.parse(text)) if text else None


def _pairs(pairs: tuple[tuple[str, int], ...]) -> str:
    return " ".join(f"{name}:{count}" for name, count in pairs)


def _read_pairs(text: str | None) -> tuple[tuple[str, int], ...]:
    parts = [part.rpartition(":") for part in (text or "").split()]
    return tuple((name, int(count)) for name, _, count in parts)
