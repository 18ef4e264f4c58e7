"""What a real Triton says a model has done, and that it begins anew when the model is loaded again."""

from collections.abc import Iterator

import pytest

from tasks.errors import JobError, ModelCrashed, ModelException, ModelNotReady, RuntimeUnavailable
from tests.conftest import MODELS
from tests.inferences import failure_of, infer, inference_on
from tests.jobs import MODEL
from tests.misbehaving_server import MisbehavingServer, http
from tests.triton_http import revive, unload
from tests.waiting import wait_until
from worker.looks import Looks
from worker.sandbox.triton_server import TritonServer
from worker.triton.adapter import TritonInference
from worker.triton.server import Statistics


@pytest.fixture
def own() -> Iterator[TritonServer]:
    """A Triton whose model may die."""
    with TritonServer(MODELS, control="explicit", models=["faulty"]) as server:
        yield server


def looks_of(adapter: TritonInference) -> Looks:
    """Looks at it."""
    return Looks(adapter.model_ready, adapter.check, adapter.statistics)


def test_what_a_model_has_done_grows_until_it_is_loaded_again(own: TritonServer) -> None:
    """Even of one whose process is dead: so a reload shows that fell between two looks."""
    with inference_on(own.url, model_name="faulty") as adapter:
        looks = looks_of(adapter)
        assert adapter.statistics(MODEL) == Statistics()
        infer(adapter, "hello")
        # Triton counts an inference when it has answered it, or a moment later.
        wait_until(lambda: adapter.statistics(MODEL).succeeded == 1, description="the inference is counted")
        failure_of(adapter, ModelException, "raise")
        failure_of(adapter, ModelCrashed, "exit")
        wait_until(lambda: adapter.statistics(MODEL).failed == 2, description="both failures are counted")
        crashed = adapter.statistics(MODEL)
        assert (crashed.inferences, crashed.succeeded) == (1, 1)
        looks.look(MODEL)  # It passes: the dead model calls itself ready.
        assert not looks.was_loaded_again(MODEL)
        failure_of(adapter, ModelCrashed, "hello")
        assert not looks.was_loaded_again(MODEL)

        revive(own.url, "faulty")
        infer(adapter, "hello")
        infer(adapter, "hello")
        looks.look(MODEL)
        assert looks.was_loaded_again(MODEL)
        assert not looks.was_loaded_again(MODEL)

        unload(own.url, "faulty")
        with pytest.raises(ModelNotReady):
            looks.look(MODEL)
        assert not looks.was_loaded_again(MODEL)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (http(403, b'{"error":"This API is restricted, expecting header \'x\'"}'), JobError),
        (http(404, b'{"error":"Not Found"}'), JobError),
        (http(200, b"<html>"), RuntimeUnavailable),
        (http(200, b'{"model_stats":[{"inference_count":"many"}]}'), RuntimeUnavailable),
        (http(200, b"[]"), RuntimeUnavailable),
    ],
)
def test_where_it_does_not_say_it_is_no_reload(answer: bytes, error: type[JobError]) -> None:
    """The statistics may be forbidden, or a proxy's page."""
    path = "/v2/models/text_generation/stats"
    with MisbehavingServer(replies={path: answer}) as server, inference_on(server.url) as adapter:
        with pytest.raises(error):
            adapter.statistics(MODEL)
        assert not looks_of(adapter).was_loaded_again(MODEL)


def test_statistics_that_say_less_are_read() -> None:
    """Older releases count less, and a model may have no version loaded."""
    path = "/v2/models/text_generation/stats"
    body = b'{"model_stats":[{"name":"m","version":"1","inference_count":3},{"inference_stats":{"fail":{"count":2}}}]}'
    with MisbehavingServer(replies={path: http(200, body)}) as server, inference_on(server.url) as adapter:
        assert adapter.statistics(MODEL) == Statistics(inferences=3, failed=2)
        server.replies[path] = http(200, b'{"model_stats":[]}')
        assert adapter.statistics(MODEL) == Statistics()
