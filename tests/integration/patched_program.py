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
    with inference_on(url, concurrency=8, timeout_seconds=2) as adapter:
        jobs = [partial(infer, adapter, f"sleep=0.2 {i}", request_id=f"r-{i}") for i in range(24)]
        texts = [got.text for got in all_at_once(jobs)]
        late = all_at_once([partial(infer, adapter, "sleep=4 x") for _ in range(9)])
    assert texts == [f"echo: sleep=0.2 {i}" for i in range(24)], texts
    assert [type(error) for error in late].count(RuntimeTimeout) == 8, late
    assert [type(error) for error in late].count(RuntimeUnavailable) == 1, late
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
