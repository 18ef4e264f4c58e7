"""The limits that workers of one GPU pool share: set by whoever starts last."""

from typing import Final

import structlog

from worker.keys import Keys
from worker.ledger_terms import PoolTerms
from worker.scripts import Argument, Link, Scripts

_FIELDS: Final = ("max_concurrency", "requests_per_minute", "tokens_per_minute", "kept_slots")

log = structlog.get_logger()


def enter_pool(link: Link, keys: Keys, terms: PoolTerms, worker_id: str) -> None:
    """Put this worker's limits in force, and log those that it replaces.

    Raises:
        RedisUnavailable: they may or may not be in force; it may be asked again.
    """
    scripts = Scripts(link, ["enter_pool"])
    arguments: list[Argument] = [keys.prefix, worker_id, terms.name]
    for name, value in zip(_FIELDS, terms.limits(), strict=True):
        arguments += [name, value]
    (replaced,) = scripts.run([scripts.command("enter_pool", [keys.pool(terms.name)], arguments)])
    for name, before in zip(replaced[::2], replaced[1::2], strict=True):
        log.warning("pool.limit_changed", pool=terms.name, limit=name.decode(), before=before.decode())
