"""A program that runs both embedded servers until it is ended, started by the tests as ``python sandbox_program.py HOW``."""

import json
import multiprocessing
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

MODELS = Path(__file__).parents[1] / "models"


def open_servers(stack: ExitStack, found: list[str]) -> None:
    """Start both servers and note their directories."""
    # Imported late, so that they see what was patched before.
    from worker.sandbox.triton_server import TritonServer
    from worker.sandbox.valkey_server import ValkeyServer

    valkey = stack.enter_context(ValkeyServer(append_only=True))
    triton = stack.enter_context(TritonServer(MODELS, control="explicit", models=["text_generation"]))
    found += [str(valkey.directory), str(triton.directory)]


def main(how: str) -> None:
    """Start the servers in the given way, say so, and wait."""
    directories: list[str] = []
    forked = None
    with ExitStack() as stack:
        if how == "short-thread":
            thread = threading.Thread(target=open_servers, args=(stack, directories))
            thread.start()
            thread.join()
        else:
            open_servers(stack, directories)
        if how == "fork":
            # The fork inherits what the program holds open, and outlives it.
            forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
            forked.start()
        sys.stdout.write(json.dumps({"directories": directories, "forked": forked and forked.pid}) + "\n")
        sys.stdout.flush()
        time.sleep(60)


if __name__ == "__main__":
    if sys.argv[1] == "gevent":
        from gevent import monkey

        monkey.patch_all()
    main(sys.argv[1])
