"""A program that runs both embedded servers until it is ended, started by the tests as ``python sandbox_program.py HOW``."""

import json
import sys

HOW = sys.argv[1]

if HOW == "gevent":
    from gevent import monkey

    monkey.patch_all()

import multiprocessing
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

MODELS = Path(__file__).parents[1] / "models"


def open_servers(stack: ExitStack, found: list[str]) -> None:
    """Start both servers and note their directories."""
    valkey = stack.enter_context(ValkeyServer(append_only=True))
    triton = stack.enter_context(TritonServer(MODELS, control="explicit", models=["text_generation"]))
    found += [str(valkey.directory), str(triton.directory)]


def main() -> None:
    """Start the servers, say so, and wait."""
    directories: list[str] = []
    with ExitStack() as stack:
        if HOW == "short-thread":
            thread = threading.Thread(target=open_servers, args=(stack, directories))
            thread.start()
            thread.join()
        else:
            open_servers(stack, directories)
        forked = None
        if HOW == "fork":
            # The fork inherits what the program holds open, and outlives it.
            forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
            forked.start()
        sys.stdout.write(json.dumps({"directories": directories, "forked": forked and forked.pid}) + "\n")
        sys.stdout.flush()
        time.sleep(60)


if __name__ == "__main__":
    main()
