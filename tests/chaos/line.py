"""A worker's line to Redis, which can be slow, held, cut, or lose replies to what was done."""

import random
import threading
import time
from typing import Final

from tests.acceptance.proxy import Proxy

_LONGEST_DELAY_SECONDS: Final = 0.06
_LOST_SHARE: Final = 0.3


class Line(Proxy):
    """A proxy that misbehaves for a while. What it draws by itself is when each held connection goes on."""

    def __init__(self, redis_url: str, seed: str) -> None:
        super().__init__(redis_url)
        self._draw = random.Random(seed)
        self._is_free = threading.Event()
        self._is_free.set()
        self._delays = False
        self._loses = False

    def stall(self) -> None:
        """Hold everything in both directions; connections stay open."""
        self._is_free.clear()

    def delay(self) -> None:
        """Hold each message for some milliseconds."""
        self._delays = True

    def lose(self) -> None:
        """Cut a connection instead of passing a reply on, every now and then."""
        self._loses = True

    def mend(self) -> None:
        """Behave from now on; what was held goes on, each connection in its own time."""
        self._delays = self._loses = False
        self._is_free.set()

    def __exit__(self, *exception: object) -> None:
        self.mend()
        super().__exit__(*exception)

    def _hold(self) -> None:
        if not self._is_free.is_set():
            self._is_free.wait()
            time.sleep(self._draw.uniform(0.0, 0.3))
        elif self._delays:
            time.sleep(self._draw.uniform(0.0, _LONGEST_DELAY_SECONDS))

    def _may_pass(self, asked: bytes, answered: bytes) -> bool:
        if self._loses and self._draw.random() < _LOST_SHARE:
            return False
        return super()._may_pass(asked, answered)
