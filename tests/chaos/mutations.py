"""Faults that are put into the workers' code on purpose: the judges must find each of them, or they are not worth their name.

Some defects do harm only in a moment that hardly ever comes. Where that is so, the mutation also makes the moment longer; what
makes it longer, alone, is a control: with it the judges must be content.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

from tests.chaos import patches
from tests.chaos.load import SHARES, Kind
from tests.chaos.options import Options
from tests.chaos.plan import FaultKind
from worker import lua


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to a script: ``old`` is there exactly once."""

    script: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        """Return the changed script."""
        if source.count(self.old) != 1:
            raise StaleMutation(f"{self.script}.lua does not hold once: {self.old}")
        return source.replace(self.old, self.new)


class StaleMutation(Exception):
    """A script has changed under a mutation."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A fault in the workers' code, and what has to happen for it to do harm: which faults, to which kinds of jobs."""

    edits: tuple[Edit, ...] = ()
    patches: tuple[Callable[[], Any], ...] = ()
    faults: frozenset[FaultKind] = frozenset()
    more: Mapping[Kind, float] = field(default_factory=dict)
    lease_seconds: float = 1.0


def mutate(name: str) -> None:
    """Put a mutation into this process' code, for good."""
    mutation = {**MUTATIONS, **CONTROLS}[name]
    edits = {edit.script: [one for one in mutation.edits if one.script == edit.script] for edit in mutation.edits}
    load = lua.load

    def mutated(script: str) -> str:
        source = load(script)
        for edit in edits.get(script, ()):
            source = edit.apply(source)
        return source

    mock.patch.object(lua, "load", mutated).start()
    for patch in mutation.patches:
        patch()


def provoking(name: str, seed: int) -> Options:
    """Return the run in which a mutation does harm."""
    mutation = {**MUTATIONS, **CONTROLS}[name]
    return Options(
        seed=seed,
        seconds=10,
        calm_seconds=3.5,
        jobs=200,
        workers=2,
        faults=mutation.faults,
        every=1.5,
        lease_seconds=mutation.lease_seconds,
        mutation=name,
        shares={**SHARES, **mutation.more},
        patience_seconds=6 + 2 * mutation.lease_seconds,
    )


_KILLS: Final = frozenset({FaultKind.WORKER_KILL})
_STALLS: Final = frozenset({FaultKind.LINE_STALL, FaultKind.WORKER_FREEZE})
_LONG: Final = {Kind.LONG: 60.0}

MUTATIONS: Final[Mapping[str, Mutation]] = {
    "settle-without-guard": Mutation(
        (Edit("settle_if_claimed", "redis.call('HEXISTS', claims, tag) == 0", "false"),), faults=_STALLS, more=_LONG
    ),
    "settle-without-marker": Mutation(
        (
            Edit("settle_if_claimed", "settled_under and settled_under ~= claim", "false"),
            Edit("settle_if_claimed", "if not settled_under then", "if true then"),
            Edit("standing", "if settled_as then", "if false then"),
        ),
        more={Kind.TWICE: 60},
    ),
    "drop-before-settle": Mutation(
        (Edit("settle_if_claimed", "redis.call('HEXISTS', claims, tag) == 0", "false"),),
        (patches.drop_claims_first,),
        faults=_KILLS,
    ),
    "claim-without-lease": Mutation(
        (Edit("claim_from_queues", "not lease or string.match(lease, '^(%S+) ') ~= incarnation", "false"),),
        (patches.trust_the_lease, patches.learn_late),
        faults=_STALLS,
    ),
    "reap-without-compare": Mutation(
        (Edit("reap_if_stood_still", "if lease ~= stood then return -1 end", ""),),
        (patches.reap_late,),
        faults=_STALLS,
        more=_LONG,
    ),
    "reap-returns-nothing": Mutation(
        (Edit("reap_if_stood_still", "redis.call('RPUSH', list, raw)", ""),), faults=_KILLS, more=_LONG
    ),
    "reap-writes-no-attempt": Mutation(
        (Edit("reap_if_stood_still", "redis.call('RPUSH', attempts", "redis.call('PUBLISH', attempts"),),
        faults=_KILLS,
        more=_LONG,
    ),
    "return-drops": Mutation(
        (Edit("return_if_claimed", "redis.call('RPUSH', list, raw)", ""),),
        faults=frozenset({FaultKind.WORKER_DRAIN}),
        more=_LONG,
    ),
    "retry-loses-bytes": Mutation(
        (Edit("retry_if_claimed", "'\\n' .. list .. '\\n' .. raw)", "'\\n' .. list .. '\\n' .. job_id)"),),
        more={Kind.RAISING: 20},
    ),
    "usage-miscounted": Mutation(patches=(patches.count_no_answer,)),
    "claim-unwritten": Mutation(
        (
            Edit(
                "claim_from_queues",
                "redis.call('HSET', claims, tag, as_record(list, job_id, now_ms, holds, raw))",
                "",
            ),
        ),
    ),
    "claim-repeated-as-new": Mutation(
        (Edit("claim_from_queues", "if found_by_an_earlier_try() then", "if false then"),),
        faults=frozenset({FaultKind.LINE_LOSE}),
    ),
    "renew-revives": Mutation(
        (
            Edit(
                "renew_if_held",
                "local held = 0",
                "local held = 0\nif not lease then\n  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' 1 ' .. ARGV[3])\n"
                "  held = 1\nend",
            ),
        ),
        faults=_STALLS,
    ),
    "cancel-ignored": Mutation(
        (
            Edit("standing", "is_there(prefix .. 'cancel:' .. job_id)", "false"),
            Edit("settle_if_claimed", "heed_cancel == '1'", "false"),
        ),
        more={Kind.CANCELLED_LATER: 20, Kind.CANCELLED_BEFORE: 10},
    ),
    "duplicate-run-at-once": Mutation(
        (Edit("standing", "if record then return 'held'", "if false then return 'held'"),), more={Kind.TWICE: 90}
    ),
    "conflict-taken-for-duplicate": Mutation(
        patches=(patches.take_each_second_for_the_same,), more={Kind.CONFLICT: 20}
    ),
    "slots-not-counted": Mutation(
        (
            Edit("pool", "if free <= 0 then return 'slots' end", ""),
            Edit("pool", "<= ahead(asks_for_its_share)", "< -1000"),
        ),
        more={
            Kind.LONG: 300.0
        },  # So many that they would fill both workers, which together have more greenlets than the pool has slots.
    ),
    "result-kept-for-ever": Mutation((Edit("settle_if_claimed", ", 'EX', result_ttl)", ")"),)),
}
"""By name."""

CONTROLS: Final[Mapping[str, Mutation]] = {
    "learns-late": Mutation(patches=(patches.learn_late,), faults=_STALLS),
    "reaps-late": Mutation(patches=(patches.reap_late,), faults=_STALLS, more=_LONG),
}
"""What only makes moments longer: no promise may break."""
