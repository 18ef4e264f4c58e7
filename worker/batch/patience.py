"""Bearing an outage of Redis: the same call again and again, for a while. Every call that is made so may be repeated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import redis
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)

T = TypeVar("T")

_PASSING: Final = (
    redis.ConnectionError,
    redis.TimeoutError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)
_PASSING_WORDS: Final = ("MISCONF", "BUSY ", "NOREPLICAS")
"""Answers of a server that will do the same command later: it cannot write its log, runs a script, or lacks replicas."""
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Repeats a call for so many ``seconds`` while Redis is away; ``tell`` hears once that it is, with the error's kind."""

    seconds: float
    now: Callable[[], float]
    sleep: Callable[[float], None]
    tell: Callable[[str], None]

    def bear(self, call: Callable[[], T]) -> T:
        """Return what the call returns. Raises what it raises for longer than that, or at once what will not pass."""
        began: float | None = None
        pause = _FIRST_PAUSE
        while True:
            try:
                return call()
            except redis.RedisError as error:
                if not _passes(error):
                    raise
                if began is None:
                    began = self.now()
                    self.tell(type(error).__name__)
                if self.now() - began >= self.seconds:
                    raise
                self.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)


def _passes(error: redis.RedisError) -> bool:
    if isinstance(error, redis.AuthenticationError):
        return False
    return isinstance(error, _PASSING) or str(error).startswith(_PASSING_WORDS)
