"""From what the command was asked to a batch that is done; whatever goes wrong becomes a failure in the user's words."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import redis

from settings.schema import Settings
from worker.batch.assembly import BadInput, Batch, LacksOption, Order, Screen, Surroundings, journal_of
from worker.batch.counts import Counts
from worker.batch.jobs import Defaults
from worker.batch.journal import Terms, UnusableJournal
from worker.batch.models import cards_of
from worker.batch.opening import CannotGoOn
from worker.batch.output import NotThisBatch
from worker.batch.survey import Form, Input, form_of
from worker.batch.table import Columns, WrongTable
from worker.cli.failures import NotRight, WrongUsage
from worker.cli.targets import RedisTarget

_PATIENCE_SECONDS: Final = 60.0
"""How long an outage of Redis is borne; after it the same command goes on where this one was."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's options."""

    source: Path
    output: Path
    errors: Path | None
    form: str | None
    model: str | None
    max_tokens: int | None
    tenant: str | None
    prompt_column: str
    ignored_columns: tuple[str, ...]
    window: int
    keep_order: bool
    strict: bool
    resume: bool


@dataclass(frozen=True, slots=True)
class Done:
    """A batch of which every line is written."""

    batch_id: str
    order: Order
    counts: Counts


def carried_out(asked: Asked, target: RedisTarget, settings: Settings | None, screen: Screen) -> Done:
    """Return the batch, done. Raises Failure."""
    _refuse_paths(asked)
    with _in_words(asked), target.connected() as client:
        order = _order(asked, target, settings)
        facts, counts = Batch(order, _surroundings(client, target, settings), screen).to_the_end()
        return Done(facts.batch_id, order, counts)


def _refuse_paths(asked: Asked) -> None:
    """Refuse what can be seen without a look into the files."""
    if not asked.source.is_file():
        raise WrongUsage(f"{asked.source} is not a file: the input is read more than once, so it has to be one")
    written = [path for path in (asked.output, asked.errors) if path is not None]
    paths = [path.resolve() for path in (asked.source, *written, journal_of(asked.output))]
    if len(set(paths)) < len(paths):
        raise WrongUsage("the input, --output, its journal and --errors must be different files")
    for path in written:
        if path.exists() and not path.is_file():
            raise WrongUsage(f"{path} is not a file: name one that can be read again")
        if not path.parent.is_dir():
            raise WrongUsage(f"{path.parent} is not a folder: make it first")


def _order(asked: Asked, target: RedisTarget, settings: Settings | None) -> Order:
    form = form_of(asked.source) if asked.form is None else Form(asked.form)
    entry = Input(asked.source, form, Columns(asked.prompt_column, frozenset(asked.ignored_columns)))
    defaults = Defaults(asked.model or _only_model(settings), asked.max_tokens, asked.tenant)
    terms = Terms(
        input_sha256=entry.digest(),
        format=form.value,
        prompt_column=asked.prompt_column,
        ignored_columns=asked.ignored_columns,
        model=defaults.model,
        max_tokens=defaults.max_tokens,
        tenant=defaults.tenant,
        keep_order=asked.keep_order,
        errors=None if asked.errors is None else os.path.relpath(asked.errors, asked.output.parent),
        redis=target.address,
        namespace=target.namespace,
    )
    return Order(entry, asked.output, asked.errors, defaults, terms, asked.window, asked.strict, asked.resume)


def _only_model(settings: Settings | None) -> str | None:
    return settings.supported_models[0] if settings and len(settings.supported_models) == 1 else None


def _surroundings(client: redis.Redis, target: RedisTarget, settings: Settings | None) -> Surroundings:
    return Surroundings(
        client=client,
        keys=target.keys,
        cards=cards_of(settings) if settings else {},
        max_job_bytes=settings.max_job_bytes if settings else Settings.model_fields["max_job_bytes"].default,
        settled_ttl_seconds=(
            settings.settled_ttl_seconds if settings else Settings.model_fields["settled_ttl_seconds"].default
        ),
        patience_seconds=_PATIENCE_SECONDS,
        now=time.monotonic,
        sleep=time.sleep,
    )


@contextmanager
def _in_words(asked: Asked) -> Iterator[None]:
    """Translate what the batch raises into what the user can do."""
    try:
        yield
    except CannotGoOn as error:
        raise WrongUsage(f"{asked.output} {error}") from None
    except UnusableJournal as error:
        raise WrongUsage(f"the journal of {asked.output} {error}") from None
    except LacksOption as error:
        raise WrongUsage(f"{asked.source}: {error}") from None
    except WrongTable as error:
        raise WrongUsage(f"{asked.source}: {error}") from None
    except NotThisBatch as error:
        raise WrongUsage(str(error)) from None
    except BadInput as error:
        raise NotRight(f"{error}\nnothing was sent") from None
    except OSError as error:
        # redis-py's errors are none of these; a file's name is the user's own.
        name = error.filename or asked.output
        raise NotRight(
            f"{name}: {error.strerror or 'cannot be used'}; when that is mended, the same command goes on"
        ) from None
