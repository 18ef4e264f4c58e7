"""``python -m benchmarks.without_inference``: the worker's command, with inferences that are made up instead of asked for.

What is left is what the queue costs, without a Triton that takes most of the two cores. ``BENCH_INFERENCE_MS`` is how long each takes:
that, half as much more or half as much less; ``BENCH_TEXT_BYTES`` is how long each text is. Triton is asked for the model's description as ever.
"""

import itertools
import os
from typing import Final

import gevent

from tasks.generate import Generation
from tasks.job import GenerateJob
from tasks.usage import Usage
from worker import runtime
from worker.cli import main
from worker.triton.adapter import TritonInference

_GOLDEN: Final = 0.6180339887498949
_SECONDS: Final = float(os.environ.get("BENCH_INFERENCE_MS", "0")) / 1000
_TEXT: Final = "x" * int(os.environ.get("BENCH_TEXT_BYTES", "224"))


class MadeUp(TritonInference):
    """Gives each job the same text."""

    numbers = itertools.count(1)

    def infer(self, job: GenerateJob, request_id: str) -> Generation:
        """Return a generation after a while."""
        del job, request_id
        if _SECONDS:
            gevent.sleep(_SECONDS * (0.5 + next(self.numbers) * _GOLDEN % 1.0))
        usage = Usage.of(prompt_tokens=256, completion_tokens=32)
        return Generation(text=_TEXT, usage=usage, finish_reason=None, model_version="1")


if __name__ == "__main__":
    vars(runtime)["TritonInference"] = MadeUp
    main()
