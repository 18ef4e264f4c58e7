"""Jobs that are too late are settled as expired and never started, also where nothing else moves."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from tests.acceptance.fleet import Client, Fleet, models
from tests.acceptance.gate import Gate
from tests.acceptance.gateway import (
    codes,
    push_jobs,
    queued,
    result_of,
    send_task,
    settlements,
    stock_producer,
    wait_for_results,
)
from tests.waiting import wait_until
from tests.witness import Witness
from worker.lookout import SWEEP_MS


def at(client: Client, seconds: float, hours_from_utc: float = 0) -> str:
    """The time so many seconds from now by Redis' clock, in some time zone."""
    now, _ = client.time()
    moment = datetime.fromtimestamp(now, UTC) + timedelta(seconds=seconds)
    return moment.astimezone(timezone(timedelta(hours=hours_from_utc))).isoformat()


def test_a_job_whose_time_has_passed_is_settled_and_never_sent(
    fleet: Fleet, valkey: Client, redis_url: str, witness: Witness
) -> None:
    """Bare and in a Celery message, in any time zone, and by max_queue_seconds; those in time run."""
    fleet.start(max_queue_seconds=60)
    late: dict[str, dict[str, Any]] = {
        "past": {"expires_at": at(valkey, -2)},
        "past-in-kiribati": {"expires_at": at(valkey, -2, 14)},
        "past-in-honolulu": {"expires_at": at(valkey, -2, -10)},
        "long-ago": {"expires_at": "1999-12-31T23:59:59Z"},
        "queued-too-long": {"enqueued_at": at(valkey, -62)},
        "queued-too-long-though-not-expired": {"enqueued_at": at(valkey, -62), "expires_at": at(valkey, 600)},
    }
    in_time: dict[str, dict[str, Any]] = {
        "future": {"expires_at": at(valkey, 600)},
        "future-in-kiribati": {"expires_at": at(valkey, 600, 14)},
        "future-in-honolulu": {"expires_at": at(valkey, 600, -10)},
        "far-future": {"expires_at": "2999-12-31T23:59:59.123456Z"},
        "queued-a-while": {"enqueued_at": at(valkey, -30)},
        "no-times": {},
    }
    with stock_producer(redis_url) as producer:
        for job_id, times in {**late, **in_time}.items():
            push_jobs(valkey, f"bare-{job_id}", **times)
            send_task(producer, f"celery-{job_id}", **times)
        push_jobs(valkey, "wrong-and-late", prompt="", expires_at=at(valkey, -2))
        late_ids = [f"{kind}-{name}" for kind in ("bare", "celery") for name in late]
        in_time_ids = [f"{kind}-{name}" for kind in ("bare", "celery") for name in in_time]
        results = wait_for_results(valkey, *late_ids, *in_time_ids)

    by_id = dict(zip(results, codes(results.values()), strict=True))
    assert by_id == {**dict.fromkeys(late_ids, "job_expired"), **dict.fromkeys(in_time_ids)}
    assert witness.count() == len(in_time_ids)
    expired = results["bare-past"]
    assert (expired.text, expired.usage, expired.attempts) == (None, None, [])
    assert expired.error is not None
    assert expired.error.retryable
    # A new try of a wrong job would fail again, so its own fault is the one that is named.
    assert codes([result_of(valkey, "wrong-and-late")]) == ["invalid_job"]


def test_expired_jobs_are_settled_though_nothing_is_taken_from_their_queue(
    fleet: Fleet, valkey: Client, redis_url: str, witness: Witness, gate: Gate
) -> None:
    """At the head of a paused model's queue, or while all slots are busy: within seconds; what is in time stays queued."""
    fleet.start(concurrency=1, **models(away={"model_name": "not_there"}, busy="text_generation"), until=("degraded",))
    push_jobs(valkey, "runs", model="acme/busy", prompt=gate.prompt())
    wait_until(lambda: witness.count() == 1, description="the only slot is busy")
    soon = at(valkey, 1)
    for model in ("acme/away", "acme/busy"):
        with stock_producer(redis_url) as producer:
            send_task(producer, f"{model[5:]}-late", model=model, expires_at=soon)
        push_jobs(valkey, f"{model[5:]}-late-too", model=model, expires_at=soon)
        push_jobs(valkey, f"{model[5:]}-in-time", model=model)
        push_jobs(valkey, f"{model[5:]}-hidden", model=model, expires_at=soon)

    # What cannot be read in Redis is looked at one in a sweep: two of them after the second in which all have expired.
    results = wait_for_results(
        valkey, "away-late", "away-late-too", "busy-late", "busy-late-too", timeout=3 * SWEEP_MS / 1000
    )
    assert codes(results.values()) == ["job_expired"] * 4
    assert settlements(valkey).keys() == set(results)
    assert queued(valkey, "acme/away") == ["away-in-time", "away-hidden"]
    assert queued(valkey, "acme/busy") == ["busy-in-time", "busy-hidden"]
    assert witness.count() == 1
    gate.open()
    assert codes(wait_for_results(valkey, "runs", "busy-in-time", "busy-hidden").values()) == [
        None,
        None,
        "job_expired",
    ]
