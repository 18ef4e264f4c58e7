"""``python -m benchmarks.pop_and_add REDIS_URL QUEUE STREAM READY``: adds to a stream what is pushed to a list, and does nothing else.

On gevent, as the worker. No queue with a worker can take less: a push, a pop and an entry. It sets READY to its process id.
"""

from gevent import monkey

monkey.patch_all()

import os  # noqa: E402 - after the patching
import sys  # noqa: E402 - after the patching
from typing import Any  # noqa: E402 - after the patching

from worker.connections import redis_client  # noqa: E402 - after the patching


def main(redis_url: str, queue: str, stream: str, ready: str) -> None:
    """Go on until killed."""
    client = redis_client(redis_url, socket_timeout=60.0)
    client.set(ready, os.getpid())
    while True:
        taken: Any = client.brpop([queue], timeout=30)
        if taken is not None:
            client.xadd(stream, {"job": taken[1]})


if __name__ == "__main__":
    main(*sys.argv[1:])
