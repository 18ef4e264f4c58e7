"""The limit: greenlets of one process that do nothing but ask Triton by tritonclient, without any queue.

Run as ``python -m benchmarks.direct_loop TRITON MODEL CONCURRENCY PROMPT_BYTES``. It answers JSON commands, one a line: ``{"do":
"run", "warm": 1.0, "seconds": 4.0}`` with the jobs done, the seconds and the CPU seconds that they took; ``{"do": "once"}`` with the
milliseconds of one inference. It ends with its input.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - after the patching
import sys  # noqa: E402 - after the patching
import time  # noqa: E402 - after the patching
from dataclasses import dataclass  # noqa: E402 - after the patching
from typing import Any  # noqa: E402 - after the patching

import gevent  # noqa: E402 - after the patching
from tritonclient.http import InferenceServerClient  # noqa: E402 - after the patching

from benchmarks.inference import infer  # noqa: E402 - after the patching


@dataclass(slots=True)
class Loop:
    """Asks a model over and over."""

    client: InferenceServerClient
    model: str
    concurrency: int
    prompt: str
    done: int = 0
    going: bool = False

    def ask(self) -> None:
        """Do one inference."""
        infer(self.client, self.model, self.prompt, 32, str(self.done))
        self.done += 1

    def ask_on(self) -> None:
        """Do inferences until told to stop."""
        while self.going:
            self.ask()

    def run(self, warm: float, seconds: float) -> dict[str, float]:
        """Keep ``concurrency`` inferences under way; return what was done in ``seconds`` after ``warm`` seconds."""
        self.going = True
        askers = [gevent.spawn(self.ask_on) for _ in range(self.concurrency)]
        gevent.sleep(warm)
        jobs, began, cpu = self.done, time.monotonic(), time.process_time()
        gevent.sleep(seconds)
        answer = {
            "jobs": self.done - jobs,
            "seconds": time.monotonic() - began,
            "cpu_seconds": time.process_time() - cpu,
        }
        self.going = False
        gevent.joinall(askers, raise_error=True)
        return answer

    def once(self) -> dict[str, float]:
        """Return the milliseconds of one inference alone."""
        began = time.perf_counter()
        self.ask()
        return {"milliseconds": (time.perf_counter() - began) * 1000}


def main(triton: str, model: str, concurrency: int, prompt_bytes: int) -> None:
    """Answer commands until there are no more."""
    loop = Loop(InferenceServerClient(triton, concurrency=concurrency), model, concurrency, "x" * prompt_bytes)
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        print(json.dumps(getattr(loop, command.pop("do"))(**command)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
