"""A worker of the kit: what ``speedinfer worker`` runs, with a failpoint or a mutation.

``python -m tests.chaos.worker_main CONFIG [--failpoint NAME:N] [--mutation NAME]``
"""

import sys
from pathlib import Path


def main(config: Path, options: dict[str, str]) -> int:
    """Run the worker until it is told to stop; returns its exit code."""
    # As worker.cli.worker does, before anything imports sockets.
    from gevent import monkey

    monkey.patch_all()
    from unittest import mock

    import worker.app
    from settings.schema import Settings
    from tests.chaos.failpoints import arm
    from tests.chaos.mutations import mutate
    from worker.cli.targets import worker_settings
    from worker.runtime import Runtime
    from worker.tracing.wanted import TracesWanted

    if "--mutation" in options:
        mutate(options["--mutation"])

    def armed(settings: Settings, traces: TracesWanted) -> Runtime:
        runtime = Runtime(settings, traces)
        if "--failpoint" in options:
            arm(runtime, options["--failpoint"])
        return runtime

    with mock.patch.object(worker.app, "Runtime", armed):
        return worker.app.run_worker(worker_settings(config))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))))
