"""Echoes the prompt with exact counts, and is the witness: it writes down every request that really reached it.

``sleep=0.5 `` at the prompt's start delays that one answer by so many seconds, in no one else's way; ``held=FOLDER `` delays it
until there is a file ``all`` in that folder, or one with the request's name (``/`` as ``:``), which is used up by it. A word
``spends=100`` in it makes the completion so many tokens long, whatever max_tokens is.
"""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import hashlib
import heapq
import json
import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

OPTIONS = ("temperature", "seed")
HELD_LOOK_SECONDS = 0.02


class TritonPythonModel:
    """Answers through response senders, so that any number of requests can wait at once."""

    def initialize(self, args):
        """Open the witness file, where the environment names one."""
        path = os.environ.get("SPEEDINFER_TEST_WITNESS")
        self.model = args["model_name"]
        self.witness = None if not path else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.waiting = []
        self.held = []
        self.changed = threading.Condition()
        self.stopped = False
        self.timer = threading.Thread(target=self.answer_when_due, daemon=True)
        self.timer.start()

    def execute(self, requests):
        """Answer what does not sleep, and leave the rest to the timer."""
        for request in requests:
            prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().reshape(-1)[0].decode()
            max_tokens = int(pb_utils.get_input_tensor_by_name(request, "max_tokens").as_numpy().reshape(-1)[0])
            note = self.note_started(request, prompt)
            answer = (request.get_response_sender(), prompt, max_tokens, note)
            if folder := word_of(prompt, "held="):
                with self.changed:
                    self.held.append((folder, request.request_id().replace("/", ":"), answer))
                    self.changed.notify()
                continue
            seconds = float(word_of(prompt, "sleep=") or 0)
            if not seconds:
                self.answer(*answer)
                continue
            with self.changed:
                heapq.heappush(self.waiting, (time.monotonic() + seconds, id(answer), answer))
                self.changed.notify()

    def answer_when_due(self):
        """Send the delayed answers, each at its time."""
        while True:
            with self.changed:
                while not self.stopped and not (due := self.take_due()):
                    self.changed.wait(self.rest())
                if self.stopped:
                    return
            for answer in due:
                self.answer(*answer)

    def take_due(self):
        """Return the answers whose time has come, or that are let go."""
        due = [held for held in self.held if is_let_go(*held[:2])]
        self.held = [held for held in self.held if held not in due]
        due = [answer for _, _, answer in due]
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            due.append(heapq.heappop(self.waiting)[2])
        return due

    def rest(self):
        """Return how long nothing is due, None while nothing waits."""
        rests = [HELD_LOOK_SECONDS] if self.held else []
        rests += [max(0.0, self.waiting[0][0] - time.monotonic())] if self.waiting else []
        return min(rests, default=None)

    def answer(self, sender, prompt, max_tokens, note):
        """Send one answer, and note that it was sent."""
        if note:
            self.write({**note, "event": "finished", "at": time.time()})
        outputs = [
            pb_utils.Tensor("text_output", np.array([[f"echo: {prompt}".encode()]], dtype=np.object_)),
            pb_utils.Tensor("prompt_tokens", np.array([[max(1, len(prompt.split()))]], dtype=np.int32)),
            pb_utils.Tensor("completion_tokens", np.array([[spent_by(prompt, max_tokens)]], dtype=np.int32)),
            pb_utils.Tensor("finish_reason", np.array([[b"length"]], dtype=np.object_)),
        ]
        sender.send(
            pb_utils.InferenceResponse(output_tensors=outputs), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        )

    def note_started(self, request, prompt):
        """Write the request down before anything is done with it."""
        if self.witness is None:
            return None
        note = {
            "request_id": request.request_id(),
            "model": self.model,
            "prompt": prompt[:200],
            "prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest(),
            "options": options_of(request),
            "parameters": json.loads(request.parameters() or "{}"),
        }
        self.write({**note, "event": "started", "at": time.time()})
        return note

    def write(self, note):
        """Append one line in one write, so that lines never mix."""
        os.write(self.witness, json.dumps(note).encode() + b"\n")

    def finalize(self):
        """End the timer."""
        with self.changed:
            self.stopped = True
            self.changed.notify()
        self.timer.join()


def word_of(prompt, name):
    """What the prompt's first word says of ``name``, empty if it is another word."""
    marker, _, _ = prompt.partition(" ")
    return marker.removeprefix(name) if marker.startswith(name) else ""


def is_let_go(folder, request):
    """Tell whether a held answer may be sent now."""
    if os.path.exists(f"{folder}/all"):  # noqa: PTH110 - no more than this is needed here
        return True
    if not request:  # Without a name it goes with all of them alone.
        return False
    try:
        os.unlink(f"{folder}/{request}")  # noqa: PTH108 - as above
    except FileNotFoundError:
        return False
    return True


def spent_by(prompt, max_tokens):
    """The length of the completion in tokens."""
    if "spends=" not in prompt:
        return max_tokens
    words = (word.removeprefix("spends=") for word in prompt.split() if word.startswith("spends="))
    return int(next(words, max_tokens))


def options_of(request):
    """The optional inputs that came along."""
    tensors = {name: pb_utils.get_input_tensor_by_name(request, name) for name in OPTIONS}
    return {name: tensor.as_numpy().reshape(-1)[0].item() for name, tensor in tensors.items() if tensor is not None}
