"""Triton's HTTP v2 protocol in a few lines, so that tests of the servers and models need no client of ours."""

import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tests.waiting import wait_until

DATATYPES: dict[type, str] = {str: "BYTES", int: "INT32", float: "FP32", bool: "BOOL"}


class TritonRefused(Exception):
    """Triton's answer was an error: its HTTP status and its text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


def call(url: str, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout: float = 30.0) -> Any:
    """Return the JSON of Triton's answer, None where it has none; raises TritonRefused on a status other than 200."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise TritonRefused(response.status, content.decode(errors="replace"))
    return json.loads(content) if content else None


def infer(
    url: str, model: str, inputs: Sequence[Mapping[str, Any]], *, request_id: str = "", timeout: float = 30.0
) -> dict[str, Any]:
    """Return the answer to one inference, its outputs by name."""
    body = {"id": request_id, "inputs": list(inputs)}
    answer: dict[str, Any] = call(url, "POST", f"/v2/models/{model}/infer", body, timeout=timeout)
    answer["outputs"] = {output["name"]: output for output in answer["outputs"]}
    return answer


def tensor(name: str, value: Any, shape: Sequence[int] = (1, 1), datatype: str | None = None) -> dict[str, Any]:
    """One input of one value."""
    return {"name": name, "datatype": datatype or DATATYPES[type(value)], "shape": list(shape), "data": [value]}


def text_generation(prompt: str, max_tokens: int = 8) -> list[dict[str, Any]]:
    """The inputs of a model with the contract's default names."""
    return [tensor("text_input", prompt), tensor("max_tokens", max_tokens)]


def load(url: str, model: str) -> None:
    """Load a model (again), and return when it serves."""
    call(url, "POST", f"/v2/repository/models/{model}/load")


def unload(url: str, model: str) -> None:
    """Unload a model, and return when it is gone; a load before that would change nothing."""
    call(url, "POST", f"/v2/repository/models/{model}/unload")
    wait_until(lambda: model_state(url, model) in {None, "UNAVAILABLE"}, description=f"{model} is unloaded")


def revive(url: str, model: str) -> None:
    """Give a model whose process died a new one, which nothing but unloading and loading does."""
    call(url, "POST", f"/v2/repository/models/{model}/unload")
    # The request that killed it stays in flight, so it is never quite unloaded; that does not keep it from being loaded.
    wait_until(lambda: model_state(url, model) != "READY", description=f"{model} is being unloaded")
    load(url, model)


def model_state(url: str, model: str) -> str | None:
    """The state of a model in the repository's index: READY, LOADING, UNLOADING, UNAVAILABLE, or None if never loaded."""
    index = call(url, "POST", "/v2/repository/index", {})
    state: str | None = next((row.get("state") for row in index if row["name"] == model), None)
    return state


def inference_count(url: str, model: str) -> int:
    """How many inferences the model really ran, as Triton counts them itself."""
    statistics = call(url, "GET", f"/v2/models/{model}/stats")["model_stats"]
    return sum(int(version["inference_count"]) for version in statistics)
