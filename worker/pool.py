"""The limits that workers of one GPU pool share: set by whoever starts last."""

from dataclasses import dataclass
from typing import Final

import structlog

from worker.keys import Keys
from worker.ledger_terms import PoolTerms
from worker.redis_link import RedisLink
from worker.scripts import Argument, Scripts

_FIELDS: Final = ("max_concurrency", "requests_per_minute", "tokens_per_minute", "kept_slots", "adaptive")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool of one worker, as its configuration has it."""

    link: RedisLink
    keys: Keys
    terms: PoolTerms
    worker_id: str

    def enter(self) -> dict[str, str]:
        """Put this worker's limits in force; returns, and logs, those that it replaces.

        Raises:
            RedisUnavailable: they may or may not be in force; it may be asked again.
        """
        scripts, pool = Scripts(self.link, ["enter_pool"]), self.terms.name
        arguments: list[Argument] = [self.keys.prefix, self.worker_id, pool]
        for name, value in zip(_FIELDS, (*self.terms.limits, int(self.terms.adaptive)), strict=True):
            arguments += [name, value]
        (replaced,) = scripts.run([scripts.command("enter_pool", [self.keys.pool(pool)], arguments)])
        self.link.close()
        texts = [text.decode() for text in replaced]
        changed = dict(zip(texts[::2], texts[1::2], strict=True))
        for name, before in changed.items():
            log.warning("pool.limit_changed", pool=pool, limit=name, before=before)
        return changed
