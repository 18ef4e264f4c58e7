"""The crew: greenlets of Celery's gevent pool that are kept from job to job."""

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

import gevent
import pytest
from celery.concurrency.gevent import TaskPool
from gevent.event import Event

from worker.crew import Crew, break_off

if TYPE_CHECKING:
    from greenlet import greenlet

PLACES = 2


@pytest.fixture
def pool() -> Iterator[TaskPool]:
    """Celery's pool with two places, which ends when nobody is left in it."""
    pool = TaskPool(PLACES)
    pool.start()
    yield pool
    with gevent.Timeout(5):
        pool.stop()


@pytest.fixture
def crew(pool: TaskPool) -> Iterator[Crew]:  # noqa: ARG001 - the pool is stopped after it: it waits for its greenlets
    """A crew that is dismissed at the end."""
    crew = Crew()
    yield crew
    crew.dismiss()


class Worked:
    """Jobs that say who did them, and wait to be let go where they are told to."""

    def __init__(self) -> None:
        self.by: dict[str, greenlet] = {}
        self.ended: list[str] = []
        self.let_go = Event()

    def short(self, name: str) -> None:
        """Do a job that is done at once."""
        self.by[name] = gevent.getcurrent()
        self.ended.append(name)

    def look(self, prompt: object) -> None:
        """Do a job that leaves nothing."""
        self.ended.append(type(prompt).__name__)

    def long(self, name: str) -> None:
        """Do a job that lasts until it is let go."""
        self.by[name] = gevent.getcurrent()
        try:
            self.let_go.wait()
        finally:
            del self.by[name]
        self.ended.append(name)


@pytest.fixture
def worked() -> Worked:
    """No jobs yet."""
    return Worked()


def test_one_greenlet_does_one_job_after_the_other(pool: TaskPool, crew: Crew, worked: Worked) -> None:
    """It is kept: none is made for a job where one is idle."""
    for name in ("a", "b", "c"):
        crew.run(pool, worked.short, name)
        gevent.idle()
    assert worked.ended == ["a", "b", "c"]
    assert len(set(map(id, worked.by.values()))) == 1


def test_as_many_jobs_run_at_once_as_the_pool_has_places(pool: TaskPool, crew: Crew, worked: Worked) -> None:
    """One more waits, without holding up whoever brought it, and runs when a place is free."""
    for name in ("a", "b", "c"):
        crew.run(pool, worked.long, name)
    gevent.idle()
    assert set(worked.by) == {"a", "b"}
    worked.let_go.set()
    gevent.idle()
    assert sorted(worked.ended) == ["a", "b", "c"]


def test_who_is_killed_is_replaced_for_what_waits(pool: TaskPool, crew: Crew, worked: Worked) -> None:
    """A kill takes the job with it, and no other."""
    for name in ("a", "b", "c", "d"):
        crew.run(pool, worked.long, name)
    gevent.idle()
    gevent.killall(list(worked.by.values()), block=False)
    gevent.idle()
    assert set(worked.by) == {"c", "d"}
    worked.let_go.set()
    gevent.idle()
    assert sorted(worked.ended) == ["c", "d"]


def test_a_job_brought_to_one_who_is_killed_before_it_begins_is_done(
    pool: TaskPool, crew: Crew, worked: Worked
) -> None:
    """The kill comes between the waking and the work."""
    crew.run(pool, worked.short, "a")
    gevent.idle()
    gevent.get_hub().loop.run_callback(worked.by["a"].throw, gevent.GreenletExit)
    crew.run(pool, worked.short, "b")
    gevent.idle()
    assert worked.ended == ["a", "b"]
    assert worked.by["a"] is not worked.by["b"]


def test_a_fault_in_a_job_takes_no_place_away(pool: TaskPool, crew: Crew, worked: Worked) -> None:
    """Whatever a job raises, the pool has as many places as before."""

    def faulty() -> None:
        raise gevent.GreenletExit

    for _ in range(2 * PLACES):
        crew.run(pool, faulty)
    crew.run(pool, worked.long, "a")
    crew.run(pool, worked.long, "b")
    gevent.idle()
    assert set(worked.by) == {"a", "b"}
    worked.let_go.set()


def test_only_what_still_runs_is_broken_off(pool: TaskPool, crew: Crew, worked: Worked) -> None:
    """A greenlet that has gone on to another job is not hit for the last one."""
    crew.run(pool, worked.long, "a")
    gevent.idle()
    names = tuple(worked.by)
    worked.let_go.set()
    gevent.idle()
    worked.let_go.clear()
    crew.run(pool, worked.long, "b")
    crew.run(pool, worked.long, "c")
    gevent.idle()
    for broken in (names, ("c",)):
        gevent.get_hub().loop.run_callback(break_off, worked.by, broken)
    gevent.idle()
    assert set(worked.by) == {"b"}
    worked.let_go.set()


def test_who_is_dismissed_ends_after_the_job(pool: TaskPool, worked: Worked) -> None:
    """The pool waits for its greenlets: one that only waited for a job would keep the worker from ending."""
    crew = Crew()
    crew.run(pool, worked.long, "a")
    crew.run(pool, worked.short, "b")
    gevent.idle()
    crew.dismiss()
    gevent.idle()
    assert worked.by["b"].dead
    assert set(worked.by) == {"a", "b"}
    worked.let_go.set()
    with gevent.Timeout(5):
        pool.stop()
    assert worked.ended == ["b", "a"]


def test_a_kept_greenlet_keeps_nothing_of_its_last_job(pool: TaskPool, crew: Crew, worked: Worked) -> None:
    """A prompt may be large."""
    prompt = {"x"}
    seen = weakref.ref(prompt)
    crew.run(pool, worked.look, prompt)
    gevent.idle()
    del prompt
    assert seen() is None
