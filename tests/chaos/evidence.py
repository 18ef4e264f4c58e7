"""What a run leaves behind, gathered from outside: from Redis, from the witness, from logs and exit codes."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import redis
from pydantic import ValidationError

from tasks.result import GenerateResult
from tests.chaos.load import Load
from tests.chaos.producer import KEYS
from tests.clean import leftovers
from tests.conservation import Whereabouts, whereabouts
from tests.witness import Served, Witness
from worker.fleet import redis_time_ms


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that was done to a process; times are unix ms. ``victims`` are the jobs that a worker held then."""

    kind: str
    target: str
    begin_ms: float
    end_ms: float
    victims: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Exit:
    """How a worker process ended; ``expected`` is None where it was not to end at all."""

    worker_id: str
    code: int | None
    expected: int | None
    note: str


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the settlement queue; ``result`` is None where it breaks the contract."""

    stream_id: str
    job_id: str
    status: str
    raw: str
    result: GenerateResult | None

    @property
    def at_ms(self) -> int:
        """Return when it was written, by Redis' clock."""
        return int(self.stream_id.partition("-")[0])


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of the processes while the run went on."""

    sends: Mapping[int, int]
    """How often each push was sent, by its number."""
    cancelled_ms: Mapping[str, int]
    incidents: Sequence[Incident]
    exits: Sequence[Exit]
    unmet: Sequence[str]
    """Failpoints that no worker came to."""
    came_to_rest: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the judges know."""

    load: Load
    observed: Observed
    entries: Sequence[Entry]
    results: Mapping[str, str]
    markers: Mapping[str, Mapping[str, str]]
    dead: Counter[bytes]
    whereabouts: Whereabouts
    served: Mapping[str, Sequence[Served]]
    """The inferences of each job_id."""
    leftovers: Sequence[str]
    slots_ms: Mapping[str, int]
    """How long each slot of the pool is still taken, though nothing runs."""
    deaths_ms: Mapping[str, float]
    """When each incarnation was declared dead, as the worker that did it logged."""


def gather(client: redis.Redis, load: Load, observed: Observed, witness: Witness, logs: Sequence[Path]) -> Evidence:
    """Return the evidence of a run whose workers have stopped."""
    where = whereabouts(client, KEYS)
    entries = [_entry(entry) for entry in client.xrange(KEYS.settlements) or []]
    job_ids = sorted({entry.job_id for entry in entries} | set(load.by_job))
    pipe = client.pipeline(transaction=False)
    for job_id in job_ids:
        pipe.get(KEYS.result(job_id))
        pipe.hgetall(KEYS.settled(job_id))
    replies = pipe.execute()
    results = {job_id: raw.decode() for job_id, raw in zip(job_ids, replies[::2], strict=True) if raw is not None}
    markers = {job_id: _text(fields) for job_id, fields in zip(job_ids, replies[1::2], strict=True) if fields}
    served: dict[str, list[Served]] = {}
    for one in witness.served():
        served.setdefault(one.request_id.partition("/")[0], []).append(one)
    left = leftovers(client)
    left += [key for key in (KEYS.leases, KEYS.running, KEYS.claimants, KEYS.waiting) if client.exists(key)]
    return Evidence(
        load,
        observed,
        entries,
        results,
        markers,
        where.dead,
        where,
        served,
        sorted(set(left)),
        _slots(client),
        _deaths(logs),
    )


def history(evidence: Evidence, job_id: str, logs: Sequence[Path]) -> list[str]:
    """Return everything that is known of one job, a line each."""
    observed = evidence.observed
    lines = [
        f"push {push.number} ({push.kind}, sent {observed.sends.get(push.number, 0)} x): {push.raw[:300]!r}"
        for push in evidence.load.by_job.get(job_id, ())
    ]
    lines += [f"cancelled at {at}" for name, at in observed.cancelled_ms.items() if name == job_id]
    lines += [
        f"witness: {one.request_id} from {one.started_at * 1000:.0f} to "
        + (f"{one.finished_at * 1000:.0f}" if one.finished_at else "no end")
        for one in evidence.served.get(job_id, ())
    ]
    lines += [f"settled as {entry.stream_id}: {entry.raw}" for entry in evidence.entries if entry.job_id == job_id]
    lines += [f"marker: {evidence.markers.get(job_id)}", f"result key: {evidence.results.get(job_id)}"]
    for place in ("queued", "claimed", "waiting", "dead"):
        found = [raw[:200] for raw in getattr(evidence.whereabouts, place) if f'"{job_id}'.encode() in raw]
        lines += [f"{place}: {raw!r}" for raw in found]
    for log in logs:
        lines += [f"{log.stem}: {line}" for line in log.read_text().splitlines() if f'"{job_id}"' in line]
    return lines


def read_journals(journals: Sequence[Path]) -> tuple[dict[int, int], dict[str, int]]:
    """Return what the producers wrote down: how often each push was sent, and when each job was cancelled for certain."""
    sends: dict[int, int] = {}
    cancelled: dict[str, int] = {}
    for journal in journals:
        for note in map(json.loads, journal.read_text().splitlines()):
            if "pushed" in note:
                sends[note["pushed"]] = note["sends"]
            else:
                cancelled[note["cancelled"]] = note["at_ms"]
    return sends, cancelled


def _slots(client: redis.Redis) -> Mapping[str, int]:
    now_ms, left = redis_time_ms(client), dict[str, int]()
    for key in client.scan_iter(f"{KEYS.pool('*')}:slots"):
        found: Any = client.zrange(key, 0, -1, withscores=True)
        for member, lapse_ms in found:
            if lapse_ms > now_ms:
                left[member.decode().replace("\n", " ")] = int(lapse_ms) - now_ms
    return left


def _entry(entry: Any) -> Entry:
    stream_id, fields = entry
    text = _text(fields)
    try:
        result: GenerateResult | None = GenerateResult.model_validate_json(text["result"])
    except ValidationError:
        result = None
    return Entry(stream_id.decode(), text["job_id"], text["status"], text["result"], result)


def _deaths(logs: Sequence[Path]) -> Mapping[str, float]:
    """Return the first death of each incarnation: claims that it still makes are the end of it once more."""
    deaths = sorted(_declared_dead(logs), key=lambda death: death[1], reverse=True)
    return dict(deaths)


def _declared_dead(logs: Sequence[Path]) -> Iterator[tuple[str, float]]:
    for log in logs:
        for line in log.read_text(errors="replace").splitlines():
            if '"worker.declared_dead"' in line:
                event = json.loads(line)
                yield event["incarnation"], datetime.fromisoformat(event["timestamp"]).timestamp() * 1000


def _text(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in fields.items()}
