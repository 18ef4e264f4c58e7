"""Ways to keep jobs running for as long as a test needs them to, however long this machine takes meanwhile."""

import threading
from collections.abc import Sequence
from typing import Final

from tests.acceptance.fleet import WorkerProcess
from tests.acceptance.proxy import Proxy
from tests.waiting import wait_until

_LOOK: Final = b"/v2/repository/index"
"""What a worker asks for every few seconds."""


class HoldingLine(Proxy):
    """A worker's way to Triton, on which answers to inferences can be held: their jobs run until they are let go."""

    def __init__(self, triton_url: str) -> None:
        super().__init__(triton_url)
        self.periodic_looks = 0
        self.answers_held = 0
        self._goes_on = threading.Event()
        self._goes_on.set()

    def hold(self) -> None:
        """Pass no answer to an inference on from now."""
        self._goes_on.clear()

    def let_go(self) -> None:
        """Pass on what is held, and all that comes."""
        self._goes_on.set()

    def __exit__(self, *exception: object) -> None:
        self.let_go()
        super().__exit__(*exception)

    def _may_pass(self, asked: bytes, answered: bytes) -> bool:
        self.periodic_looks += asked.find(_LOOK) >= 0
        if b"/infer" in asked:
            self.answers_held += 1
            self._goes_on.wait()
            self.answers_held -= 1
        return super()._may_pass(asked, answered)


def wait_until_stuck(workers: Sequence[WorkerProcess], jobs: int) -> None:
    """Return when the workers hold so many jobs, and have heard all that there is to hear of them from a frozen Triton."""

    def held() -> set[tuple[str, bytes]]:
        return {(worker.worker_id, tag) for worker in workers for tag in worker.claims()}

    def is_stuck() -> bool:
        before = held()
        if len(before) != jobs:
            return False
        for worker in workers:
            worker.wait_for_beats(2)
        return held() == before

    wait_until(is_stuck, description=f"{jobs} jobs are held, and none of them moves")
