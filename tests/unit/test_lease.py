"""Who is alive: what a run may trust of its own lease, and whom a watcher declares dead."""

from dataclasses import dataclass, field
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import FakeClock
from worker.lease import Dead, Incarnation, Lease, LeaseWatch

INTERVAL = 500
LEASE = 3000
RUN = "triton-02:b"
SHORT_RUN = "triton-03:c"
LENGTHS = {RUN: LEASE, SHORT_RUN: 1000}


def text(run: str, counter: int) -> str:
    """Return a lease as Redis holds it."""
    return f"{run} {counter} {LENGTHS[run]}"


class TestIncarnation:
    def test_a_run_is_named_after_its_worker(self) -> None:
        """And after nothing else that another run could share."""
        names = {Incarnation("triton-01", LEASE, FakeClock()).name for _ in range(100)}
        assert len(names) == 100
        assert {name.rpartition(":")[0] for name in names} == {"triton-01"}
        assert not any(" " in name or "/" in name for name in names)

    def test_a_lease_that_was_never_taken_is_not_trusted(self) -> None:
        """However early it is."""
        assert not Incarnation("triton-01", LEASE, FakeClock(now_ms=-1e9)).is_trusted()

    @pytest.mark.parametrize(("passed_ms", "trusted"), [(0, True), (1799, True), (1800, False), (3000, False)])
    def test_it_is_trusted_for_less_than_its_length(self, passed_ms: float, trusted: bool) -> None:
        """Since it was asked for, not since the answer: nobody knows when in between the server did it."""
        clock = FakeClock(now_ms=100)
        incarnation = Incarnation("triton-01", LEASE, clock)
        incarnation.renewed(asked_ms=100)
        clock.pass_ms(passed_ms)
        assert incarnation.is_trusted() is trusted

    def test_an_answer_that_took_long_gives_no_trust(self) -> None:
        """The lease may be over by the time of the answer."""
        clock = FakeClock()
        incarnation = Incarnation("triton-01", LEASE, clock)
        clock.pass_ms(2000)
        incarnation.renewed(asked_ms=0)
        assert not incarnation.is_trusted()

    def test_beginning_anew_is_another_run(self) -> None:
        """With a lease that it has yet to take."""
        incarnation = Incarnation("triton-01", LEASE, FakeClock())
        incarnation.renewed(asked_ms=0)
        before = incarnation.name
        incarnation.begin_anew()
        assert incarnation.name != before
        assert not incarnation.is_trusted()


@pytest.mark.parametrize(
    ("of", "incarnation", "lease_ms"), [("a:b 0 10000", "a:b", 10_000), ("x.y_z-1:c 123456789 500", "x.y_z-1:c", 500)]
)
def test_a_lease_says_whose_it_is_and_how_long(of: str, incarnation: str, lease_ms: float) -> None:
    """As the scripts write it."""
    assert (Lease(of).incarnation, Lease(of).lease_ms) == (incarnation, lease_ms)


@dataclass
class Scene:
    """A watcher of RUN, who looks when the test says so."""

    watch: LeaseWatch = field(default_factory=lambda: LeaseWatch(INTERVAL, LEASE))
    now_ms: float = 0

    def look(self, gap_ms: float, counter: int | None, *, claims: bool = False) -> list[Dead]:
        """Look after so long; the lease stands so, None for none."""
        self.now_ms += gap_ms
        leases = {} if counter is None else {"triton-02": text(RUN, counter)}
        return self.watch.look(leases, frozenset({RUN}) if claims else frozenset(), self.now_ms)


class TestLeaseWatch:
    def test_a_counter_that_stood_still_over_its_lease_is_a_dead_runs(self) -> None:
        """Not a look earlier; and the lease is named as it stood."""
        scene = Scene()
        for _ in range(6):
            assert scene.look(INTERVAL, 7) == []
        assert scene.look(INTERVAL, 7) == [Dead("triton-02", RUN, text(RUN, 7))]

    def test_it_is_dead_until_it_is_gone(self) -> None:
        """Whoever ends it may have failed."""
        scene = Scene()
        for _ in range(7):
            scene.look(INTERVAL, 7)
        assert len(scene.look(INTERVAL, 7)) == 1
        assert scene.look(INTERVAL, None) == []

    def test_a_renewal_is_a_sign_of_life(self) -> None:
        """At the last moment."""
        scene = Scene()
        for _ in range(6):
            scene.look(INTERVAL, 7)
        for _ in range(6):
            assert scene.look(INTERVAL, 8) == []

    def test_claims_without_a_lease_are_waited_for_as_long_as_the_own_lease(self) -> None:
        """Of a run that died between the two; its worker_id is what its name begins with."""
        scene = Scene()
        for _ in range(6):
            assert scene.look(INTERVAL, None, claims=True) == []
        assert scene.look(INTERVAL, None, claims=True) == [Dead("triton-02", RUN, None)]

    def test_claims_of_a_living_run_say_nothing(self) -> None:
        """Its lease counts."""
        scene = Scene()
        for counter in range(20):
            assert scene.look(INTERVAL, counter, claims=True) == []

    def test_a_lease_that_went_away_is_waited_for_anew(self) -> None:
        """With its claims left, it may be about to be ended by another."""
        scene = Scene()
        for _ in range(6):
            scene.look(INTERVAL, 7, claims=True)
        for _ in range(6):
            assert scene.look(INTERVAL, None, claims=True) == []

    def test_who_comes_back_is_waited_for_anew(self) -> None:
        """Though with the very same lease."""
        scene = Scene()
        for _ in range(6):
            scene.look(INTERVAL, 7)
        scene.look(INTERVAL, None)
        for _ in range(6):
            assert scene.look(INTERVAL, 7) == []

    def test_a_missed_look_forgets_everything(self) -> None:
        """While Redis was away nobody could renew: an outage is nobody's death."""
        scene = Scene()
        for _ in range(6):
            scene.look(INTERVAL, 7)
        scene.watch.missed()
        for _ in range(6):
            assert scene.look(INTERVAL, 7) == []
        assert len(scene.look(INTERVAL, 7)) == 1

    def test_a_stall_of_the_watcher_counts_as_one_interval(self) -> None:
        """It was frozen, so others may have been too, or Redis."""
        scene = Scene()
        scene.look(0, 7)
        for _ in range(5):
            assert scene.look(LEASE, 7) == []
        assert len(scene.look(LEASE, 7)) == 1

    def test_each_run_has_the_length_it_says(self) -> None:
        """Workers may be configured differently."""
        watch = LeaseWatch(INTERVAL, 100_000)
        leases = {"triton-02": text(RUN, 1), "triton-03": text(SHORT_RUN, 1)}
        dead = [{one.incarnation for one in watch.look(leases, frozenset(), n * INTERVAL)} for n in range(7)]
        assert dead == [set(), set(), *[{SHORT_RUN}] * 4, {SHORT_RUN, RUN}]


STEPS = st.lists(
    st.tuples(
        st.integers(1, 4 * INTERVAL),
        st.sampled_from(["look", "look", "look", "look", "look", "miss"]),
        st.sets(st.sampled_from([RUN, SHORT_RUN]), max_size=1),
    ),
    max_size=60,
)


@given(STEPS)
def test_nobody_is_declared_dead_who_moved_within_its_lease(steps: list[tuple[int, str, set[str]]]) -> None:
    """Whatever the gaps, misses and stalls between the looks."""
    watch = LeaseWatch(INTERVAL, LEASE)
    counters, moved_ms = dict.fromkeys(LENGTHS, 0), dict.fromkeys(LENGTHS, 0)
    now_ms = 0
    for gap_ms, kind, moving in steps:
        now_ms += gap_ms
        for run in moving:
            counters[run] += 1
            moved_ms[run] = now_ms
        if kind == "miss":
            watch.missed()
            continue
        leases = {run.partition(":")[0]: text(run, counter) for run, counter in counters.items()}
        for dead in watch.look(leases, frozenset(), now_ms):
            assert now_ms - moved_ms[dead.incarnation] >= LENGTHS[dead.incarnation]


@given(STEPS, st.lists(st.integers(1, 2 * INTERVAL), min_size=1, max_size=12), st.booleans())
def test_who_stands_still_is_declared_dead_in_time(
    before: list[tuple[int, str, set[str]]], gaps: list[int], has_lease: bool
) -> None:
    """By the first of regular looks that is a lease after the first one that saw it so; whatever was before."""
    watch = LeaseWatch(INTERVAL, LEASE)
    now_ms = 0
    for gap_ms, kind, _ in before:
        now_ms += gap_ms
        watch.missed() if kind == "miss" else watch.look({"triton-02": text(RUN, now_ms)}, frozenset(), now_ms)
    leases = {"triton-02": text(RUN, -1)} if has_lease else {}
    first_ms = now_ms = now_ms + 1
    dead = watch.look(leases, frozenset({RUN}), now_ms)
    for gap_ms in cycle(gaps):
        if dead:
            break
        now_ms += gap_ms
        dead = watch.look(leases, frozenset({RUN}), now_ms)
        assert bool(dead) == (now_ms - first_ms >= LEASE)
    assert [one.incarnation for one in dead] == [RUN]
    assert now_ms - first_ms <= LEASE + 2 * INTERVAL


@given(st.lists(st.tuples(st.integers(2 * INTERVAL + 1, 10**9), st.booleans()), max_size=5))
def test_no_stall_makes_anyone_dead(stalls: list[tuple[int, bool]]) -> None:
    """A watcher that looks rarely, or misses looks, declares nobody dead by the time that passed alone."""
    scene = Scene()
    scene.look(0, 7)
    for gap_ms, missed in stalls:
        if missed:
            scene.watch.missed()
        assert scene.look(gap_ms, 7) == []
