"""The Celery application: its options, its one task, and the steps by which a worker starts and stops."""

import signal
import warnings
from os import EX_OK, EX_SOFTWARE
from typing import Any, ClassVar, Final

import structlog
from celery import Celery, Task, signals
from celery.bootsteps import StartStopStep
from celery.exceptions import SecurityWarning
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu import Queue

from settings.schema import Settings
from tasks.delivery import Delivery, Outcome
from tasks.job import TASK_NAME
from worker.crew import Crew
from worker.lease_keeper import WorkerIdTaken
from worker.logs import configure_logs
from worker.metrics.server import AddressInUse
from worker.process import collect_garbage_seldom
from worker.runtime import Runtime
from worker.tracing.wanted import NO_TRACES, TracesWanted
from worker.transport_options import JobsOption, RedisOption

_LONGEST_RECONNECT_SECONDS: Final = 1.0
_WRONG_USAGE: Final = 2
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)

log = structlog.get_logger()


class GenerateTask(Task[..., Outcome | None]):
    """The task of every job: a shell around ``tasks.generate``."""

    name = TASK_NAME
    Strategy = "worker.strategy:run_in_pool"
    runtime: Runtime
    crew: Crew
    ignore_result = True
    acks_late = True

    def run(self, delivery: Delivery) -> Outcome | None:
        """Run a delivery in this process' runtime; return what becomes of it, None where it goes back untouched."""
        return self.runtime.perform(delivery)


def create_app(settings: Settings, traces: TracesWanted = NO_TRACES) -> Celery:
    """Return the application for a worker's settings; nothing is connected by it."""
    app = Celery("speedinfer", set_as_current=False)
    runtime = Runtime(settings, traces)
    app.conf.update(_options(settings, runtime))
    app.events.dispatcher_cls = "worker.events:UnhurriedDispatcher"
    task = GenerateTask()
    task.runtime = runtime
    task.crew = Crew()
    app.register_task(task)
    app.steps["worker"].add(_jobs_step(runtime, task.crew))
    signals.setup_logging.connect(lambda **_: configure_logs(settings), weak=False)
    return app


def run_worker(settings: Settings, traces: TracesWanted = NO_TRACES) -> int:
    """Run a worker until it is told to stop; returns its exit code."""
    app = create_app(settings, traces)
    # Celery warns of root for the sake of pickled messages; no message is ever decoded here.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    worker = app.Worker(pool_cls="gevent", hostname=f"{settings.worker_id}@{settings.endpoint_id}", quiet=True)
    worker.start()
    return int(worker.exitcode or 0)


def _options(settings: Settings, runtime: Runtime) -> dict[str, Any]:
    prefix = runtime.keys.jobs("")
    return {
        "broker_url": _shown_broker(settings.redis_address),
        "broker_transport": "worker.transport:Transport",
        "broker_transport_options": {
            "redis": RedisOption(settings.redis_url.get_secret_value()),
            "job_source": JobsOption(runtime.intake),
            "jobs_prefix": prefix,
            "global_keyprefix": runtime.keys.prefix,
            "socket_timeout": 5,
            "socket_connect_timeout": 2,
            "health_check_interval": 10,
        },
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "result_backend": None,
        "result_backend_thread_safe": True,
        "task_queues": [Queue(prefix + model, routing_key=prefix + model) for model in settings.supported_models],
        "task_create_missing_queues": False,
        "task_ignore_result": True,
        "worker_consumer": "worker.app:JobConsumer",
        "worker_concurrency": settings.concurrency,
        "worker_prefetch_multiplier": 1,
        "worker_disable_rate_limits": True,
        "worker_send_task_events": settings.celery_events,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_enable_prefetch_count_reduction": False,
    }


def _shown_broker(address: str) -> str:
    """Return what Celery shows, in a form that kombu reads. The whole address, with what is secret in it, is in an option."""
    place = address.partition("://")[2].partition("/")[0].partition(",")[0]
    return f"redis://{place or 'localhost'}"


def _jobs_step(runtime: Runtime, crew: Crew) -> type[StartStopStep]:
    class JobsStep(StartStopStep):
        """Starts and drains the runtime: after the pool is there, before the pool goes."""

        requires = ("celery.worker.components:Pool",)

        def start(self, parent: Any) -> None:
            """Start the runtime with as many slots as the pool has greenlets."""
            if reason := _wrong_usage(parent):
                raise _refused(reason)
            _stop_on_signals(runtime)
            try:
                runtime.start(parent.pool.num_processes)
            except WorkerIdTaken:
                raise _refused("another live process runs under this worker_id") from None
            except AddressInUse as problem:
                raise _refused(str(problem)) from None
            collect_garbage_seldom()

        def stop(self, parent: Any) -> None:  # noqa: ARG002 - Celery's signature
            """Let running jobs end, for drain_seconds at most."""
            self._end(runtime.settings.drain_seconds)

        def terminate(self, parent: Any) -> None:  # noqa: ARG002 - Celery's signature
            """Put every job back now."""
            self._end(0)

        @staticmethod
        def _end(seconds: float) -> None:
            runtime.drain(seconds)
            crew.dismiss()
            # Python's end would give a handler's signal back to the system, which kills: all is done, whoever asks again.
            for number in _STOPPING:
                signal.signal(number, signal.SIG_IGN)

    return JobsStep


def _refused(reason: str) -> SystemExit:
    log.critical("worker.was_refused", reason=reason)
    return SystemExit(_WRONG_USAGE)


def _wrong_usage(worker: Any) -> str | None:
    """Return what of Celery's own command line cannot be, None for nothing."""
    if not worker.pool.is_green:
        return "the worker runs on greenlets: start it with -P gevent"
    if worker.pool.num_processes < 1:
        return "a worker without slots would call itself ready and take nothing: -c says how many it has, or --autoscale MAX,MIN"
    if worker.pool.timeout:
        # Celery would end the greenlet, which runs many jobs, and nobody would hear what became of the one it had.
        return "--time-limit ends greenlets, and not inferences: runtime_config.timeout_seconds bounds those"
    if set(worker.app.amqp.queues.consume_from) != {queue.name for queue in worker.app.conf.task_queues}:
        return "-Q and -X would leave models out that the worker says it serves: supported_models says which it takes"
    return None


def _stop_on_signals(runtime: Runtime) -> None:
    """Put our handlers in place of Celery's, one of which acknowledges what it kills.

    Each of the signals drains: the first lets running jobs end, a second puts all of them back at once.
    """

    def stop(_signal: int, _frame: object) -> None:
        runtime.stop()
        state.should_stop = EX_SOFTWARE if runtime.lost_a_part else EX_OK  # type: ignore[assignment]  # the stubs know only the value it starts with

    for number in _STOPPING:
        signal.signal(number, stop)


class JobConsumer(Consumer):
    """Celery's consumer without what workers tell each other, which ours do not need, and quick to reconnect."""

    class Blueprint(Consumer.Blueprint):  # type: ignore[valid-type,misc]  # the stubs give a nested class as a variable
        """Celery's steps, with our remote control."""

        default_steps: ClassVar[list[str]] = [
            "worker.remote_control:SteadyControl" if step == "celery.worker.consumer.control:Control" else step
            for step in Consumer.Blueprint.default_steps
        ]

    def __init__(self, on_task_request: Any, *, worker_options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Leave out mingle and gossip, and Celery's heartbeat unless events were asked for: it is one of them."""
        told = bool(kwargs.get("task_events"))
        without = {"without_mingle": True, "without_gossip": True, "without_heartbeat": not told}
        super().__init__(on_task_request, worker_options={**(worker_options or {}), **without}, **kwargs)

    def ensure_connected(self, conn: Any) -> Any:
        """Return the connection once there is one."""

        def interrupted(error: BaseException, interval: float) -> None:
            log.debug("broker.was_awaited", exception=type(error).__name__, interval=interval)

        return conn.ensure_connection(
            interrupted,
            max_retries=None,
            interval_start=0.1,
            interval_step=0.2,
            interval_max=_LONGEST_RECONNECT_SECONDS,
            callback=state.maybe_shutdown,
        )
