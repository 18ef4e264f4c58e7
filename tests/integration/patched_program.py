"""A program as the worker is one: patched by gevent first of all. Exits 0 when jobs on the Triton given run as they should."""

# ruff: noqa: E402 - nothing may be imported before it is patched
from gevent import monkey

monkey.patch_all()

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tasks.errors import RuntimeTimeout, RuntimeUnavailable
from tests.inferences import all_at_once, infer, inference_on


def main(url: str) -> int:
    """Run many jobs at once, and let some time out."""
    models = {"patient": {"timeout_seconds": 20}, "hasty": {"timeout_seconds": 1}}
    with inference_on(url, concurrency=8, supported_models=[*models], models=models) as adapter:
        jobs = [partial(infer, adapter, f"sleep=0.2 {i}", request_id=f"r-{i}", model="patient") for i in range(24)]
        texts = [got.text for got in all_at_once(jobs)]
        adapter.check("hasty")
        late = all_at_once([partial(infer, adapter, "sleep=2 x", model="hasty") for _ in range(8)])
        holding = [partial(infer, adapter, "sleep=3 x", model="patient") for _ in range(8)]
        *held, refused = all_at_once([*holding, partial(infer, adapter, model="hasty")])
    assert texts == [f"echo: sleep=0.2 {i}" for i in range(24)], texts
    assert [type(error) for error in late] == [RuntimeTimeout] * 8, late
    assert [got.text for got in held] == ["echo: sleep=3 x"] * 8, held
    assert type(refused) is RuntimeUnavailable, refused
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
