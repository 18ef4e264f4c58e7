"""Somebody who sees to it that a model comes back whose process has died: Triton does not do it by itself."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.triton_http import revive
from tests.witness import Witness


@contextmanager
def revived(url: str, witness: Witness) -> Iterator[None]:
    """Give the model a new process each time that a prompt ``exit`` has ended its process, as an operator would."""
    stopping = threading.Event()

    def watch() -> None:
        seen = 0
        while not stopping.wait(0.02):
            killed = sum(served.prompt == "exit" for served in witness.served("faulty"))
            if killed > seen:
                seen = killed
                revive(url, "faulty")

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
