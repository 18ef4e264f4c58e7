"""A batch from its parts: opens what is there, checks, begins or goes on, and runs to the end."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

import redis

from worker.batch.bad_line import BadLine
from worker.batch.collecting import Collector
from worker.batch.counts import Counts
from worker.batch.following import DeadLetters
from worker.batch.jobs import Defaults, JobMaker, Templates
from worker.batch.journal import Facts, Journal, Terms
from worker.batch.models import ModelCard, Models
from worker.batch.opening import to_go_on_with
from worker.batch.output import Outputs, ResultFile
from worker.batch.patience import Patience
from worker.batch.post import Post
from worker.batch.progress import Progress, Watcher
from worker.batch.result_lines import batch_id
from worker.batch.run import Run
from worker.batch.sending import Sender
from worker.batch.survey import Input, Unpinned, bad_lines
from worker.batch.window import Window
from worker.fleet import redis_time_ms
from worker.keys import Keys

JOURNAL_SUFFIX: Final = ".journal"

_MOST_SHOWN: Final = 20
_MOST_UNSERVED: Final = 5


def journal_of(output: Path) -> Path:
    """Return where the journal of a batch with this output is."""
    return output.with_name(output.name + JOURNAL_SUFFIX)


class BadInput(Exception):
    """Lines of the input are no jobs, and none may be; a line of the message for each of the first ones."""


class LacksOption(Exception):
    """The first line lacks what an option would give it, and so may all of them; the message names the option."""


class Screen(Watcher, Protocol):
    """Whoever looks on, and learns how much there is to do."""

    def begin(self, total: int, counts: Counts) -> None:
        """Hear how many lines there are, and what is written of them already."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done."""

    input: Input
    output: Path
    errors: Path | None
    defaults: Defaults
    terms: Terms
    window: int
    strict: bool
    resume: bool

    @property
    def journal(self) -> Path:
        """Return where the batch's journal is."""
        return journal_of(self.output)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the batch runs in. ``cards`` is what a configuration says of models; ``patience_seconds`` bounds an outage of Redis."""

    client: redis.Redis
    keys: Keys
    cards: Mapping[str, ModelCard]
    max_job_bytes: int
    settled_ttl_seconds: int
    patience_seconds: float
    now: Callable[[], float]
    sleep: Callable[[float], None]


class Batch:
    """One command's work on a batch."""

    def __init__(self, order: Order, around: Surroundings, screen: Screen) -> None:
        self._order = order
        self._around = around
        self._screen = screen
        patience = Patience(around.patience_seconds, around.now, around.sleep, self._redis_is_away)
        self._post = Post(around.client, around.keys, patience)
        self._models = Models(around.cards, self._post.registered, self._met)
        self._unserved = 0

    def to_the_end(self) -> tuple[Facts, Counts]:
        """Return what the batch is, and what became of its lines.

        Raises:
            UnusableJournal, CannotGoOn, NotThisBatch: what is there is in the way.
            WrongTable, BadInput, LacksOption: the input is.
            OSError, redis.RedisError: a file, or Redis, cannot be used.
        """
        total = self._order.input.count()
        journal = Journal.open(self._order.journal)
        try:
            facts, is_new = self._facts(journal)
            self._check(facts, total, is_new=is_new)
            return facts, self._run(journal, facts, total, is_new=is_new)
        finally:
            if journal.facts is None:
                self._order.journal.unlink(missing_ok=True)
            journal.close()

    def _facts(self, journal: Journal) -> tuple[Facts, bool]:
        """Return the batch, and whether it is yet to begin."""
        order = self._order
        known = to_go_on_with(
            journal.facts,
            order.terms,
            resume=order.resume,
            output_is_empty=_is_empty(order.output),
            errors_are_empty=order.errors is None or _is_empty(order.errors),
        )
        if known is not None:
            return known, False
        return Facts(batch_id(uuid.uuid4().hex), redis_time_ms(self._around.client), order.terms), True

    def _check(self, facts: Facts, total: int, *, is_new: bool) -> None:
        """Look at the input before anything of it is sent: at all of it if asked to, else at the first line of a new batch."""
        maker = self._maker(facts, Unpinned(facts.templates))
        if self._order.strict:
            self._screen.note(f"checking {total:,} lines")
            _refuse_any(bad_lines(self._order.input.records(), maker))
        elif is_new:
            for _, bad in bad_lines(islice(self._order.input.records(), 1), maker):
                if bad.option:
                    raise LacksOption(f"{bad.message}: give {bad.option}, or say it in each line")

    def _run(self, journal: Journal, facts: Facts, total: int, *, is_new: bool) -> Counts:
        order = self._order
        with ExitStack() as files:
            results = files.enter_context(ResultFile(order.output))
            errors = None if order.errors is None else files.enter_context(ResultFile(order.errors))
            outputs = Outputs(results, errors)
            progress = Progress(Window(order.window, keep_order=order.terms.keep_order), outputs, self._screen)
            if is_new:
                # In this order: a kill in between leaves the old batch without lines, which it would write again.
                outputs.clear()
                journal.begin(facts)
            else:
                for written in outputs.recover(facts.batch_id):
                    progress.count(written)
            self._screen.begin(total, progress.counts)
            if len(progress.done) >= total:
                return progress.counts
            return self._assembled(journal, facts, progress, is_new=is_new).to_the_end()

    def _assembled(self, journal: Journal, facts: Facts, progress: Progress, *, is_new: bool) -> Run:
        around = self._around
        # Outside of patience: where Redis is away from the start, people want to hear it at once.
        age_ms = redis_time_ms(around.client) - facts.seen_at_ms
        sender = Sender(
            self._order.input.records(),
            self._maker(facts, journal),
            journal,
            facts,
            progress,
            self._post,
            age_seconds=0.0 if is_new else age_ms / 1000,
            remembered_seconds=self._remembered_seconds,
        )
        letters = DeadLetters(facts.batch_id, facts.created_at_ms)
        collector = Collector(progress, self._post, letters, around.now)
        return Run(sender, collector, progress, around.now, around.sleep)

    def _maker(self, facts: Facts, templates: Templates) -> JobMaker:
        return JobMaker(
            facts.batch_id,
            datetime.fromtimestamp(facts.created_at_ms / 1000, UTC),
            self._order.defaults,
            card=self._models.card,
            templates=templates,
            max_job_bytes=self._around.max_job_bytes,
        )

    def _remembered_seconds(self, model: str) -> float:
        declared = self._models.card(model).settled_ttl_seconds
        return self._around.settled_ttl_seconds if declared is None else min(declared, self._around.settled_ttl_seconds)

    def _met(self, model: str) -> None:
        if self._unserved < _MOST_UNSERVED and not self._post.is_served(model):
            self._unserved += 1
            self._screen.note(f"no live worker serves {model}: its lines wait until one does")

    def _redis_is_away(self, kind: str) -> None:
        self._screen.note(f"Redis does not answer ({kind}); asking again for {self._around.patience_seconds:g} s")


def _refuse_any(bad: Iterator[tuple[int, BadLine]]) -> None:
    first = [f"line {number}: {each.message}" for number, each in islice(bad, _MOST_SHOWN)]
    if first:
        more = sum(1 for _ in bad)
        raise BadInput("\n".join([*first, f"and {more:,} more lines"] if more else first))


def _is_empty(path: Path) -> bool:
    return not path.exists() or path.stat().st_size == 0
