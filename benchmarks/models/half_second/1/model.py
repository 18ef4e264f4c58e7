"""Takes half a second for each request, any number at once, as a language model with continuous batching does.

The times are 375 to 625 ms, spread evenly by the golden ratio, and not by chance: so the mean of any few dozen is half a second,
and a short window says as much as a long one.
"""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import heapq
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

SHORTEST_SECONDS = 0.375
SPREAD_SECONDS = 0.25
GOLDEN = 0.6180339887498949


class TritonPythonModel:
    """Answers through response senders, from one thread that has all the times."""

    def initialize(self, args):  # noqa: ARG002 - Triton's signature
        """Make the answer once, and start the timer."""
        self.response = pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("text_output", np.array([[b"answer " * 32]], dtype=np.object_)),
                pb_utils.Tensor("prompt_tokens", np.array([[256]], dtype=np.int32)),
                pb_utils.Tensor("completion_tokens", np.array([[32]], dtype=np.int32)),
            ]
        )
        self.taken = 0
        self.waiting = []
        self.changed = threading.Condition()
        self.stopped = False
        self.timer = threading.Thread(target=self.answer_when_due, daemon=True)
        self.timer.start()

    def execute(self, requests):
        """Note when each is due."""
        with self.changed:
            for request in requests:
                self.taken += 1
                due = time.monotonic() + SHORTEST_SECONDS + SPREAD_SECONDS * (self.taken * GOLDEN % 1.0)
                heapq.heappush(self.waiting, (due, self.taken, request.get_response_sender()))
            self.changed.notify()

    def answer_when_due(self):
        """Send each answer at its time."""
        while True:
            with self.changed:
                while not self.stopped and (not self.waiting or self.waiting[0][0] > time.monotonic()):
                    self.changed.wait(self.waiting[0][0] - time.monotonic() if self.waiting else None)
                if self.stopped:
                    return
                _, _, sender = heapq.heappop(self.waiting)
            sender.send(self.response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        """End the timer."""
        with self.changed:
            self.stopped = True
            self.changed.notify()
        self.timer.join()
