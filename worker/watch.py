"""Looks now and then at what the runtime has: models that vanish, come back or are loaded anew are met before a job does."""

from collections.abc import Callable, Iterable
from typing import Final

import gevent
import structlog

SECONDS_BETWEEN: Final = 5.0

log = structlog.get_logger()


class Watch:
    """One look at all models every few seconds, and one at each that may have changed. It stops nothing that runs."""

    def __init__(
        self,
        changed: Callable[[], frozenset[str]],
        is_open: Callable[[str], bool],
        look_now: Callable[[Iterable[str]], None],
        draw: Callable[[], float],
    ) -> None:
        """Take what names the models that may have changed, and what looks at some; shut ones are looked at anyhow."""
        self._changed = changed
        self._is_open = is_open
        self._look_now = look_now
        self._draw = draw

    def run(self) -> None:
        """Watch until killed."""
        while True:
            gevent.sleep(SECONDS_BETWEEN * (0.75 + self._draw() / 2))  # Workers of one server do not ask as one.
            self.watch()

    def watch(self) -> None:
        """Do it once."""
        try:
            changed = self._changed()
        except Exception:  # The periodic loop: a fault in a look must not end all looks
            log.exception("models.watch_failed")
            return
        self._look_now(sorted(filter(self._is_open, changed)))
