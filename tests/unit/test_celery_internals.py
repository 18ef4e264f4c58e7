"""What the worker stands on inside Celery and kombu, none of it promised by them; each test says which module breaks.

Both are pinned exactly. When a pin moves, what fails here has to be looked at in the new release before anything else.
"""

import inspect
import re
import socket
import tomllib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, bootsteps
from celery.app.task import Task
from celery.concurrency.base import BasePool
from celery.concurrency.gevent import TaskPool
from celery.worker import components, control, pidbox, state
from celery.worker.consumer import Consumer
from celery.worker.consumer.control import Control
from celery.worker.loops import synloop
from kombu import Connection
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"

Functions = Callable[..., Any]

# The stubs know little of what is private; that it is there is what these tests say.
RedisChannel: Any = kombu_redis.Channel
VirtualChannel: Any = virtual.Channel
PrivateConnection: Any = Connection
Commands: Any = control


def broken(module: str, need: str) -> str:
    """Return the message of a need that is not met any more."""
    return f"{module} needs that {need}: read the new release's code, then change {module} and this test together"


def parameters(function: Functions) -> list[str]:
    """Return the names of a function's parameters."""
    return list(inspect.signature(function).parameters)


def source(function: Any) -> str:
    """Return a function's code on one line."""
    return re.sub(r"\s+", " ", inspect.getsource(function))


@pytest.mark.parametrize("distribution", ["celery", "kombu"])
def test_the_installed_version_is_the_pinned_one(distribution: str) -> None:
    """Exactly: the internals below were read in that release."""
    pins = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    (pin,) = [line for line in pins if line.startswith(distribution)]
    assert pin == f"{distribution}=={version(distribution)}", broken(
        "pyproject.toml", f"{distribution} is pinned to the release that was read"
    )


class TestStrategy:
    """worker/strategy.py: how a delivered job is run without Celery's trace."""

    def test_a_task_names_its_strategy(self) -> None:
        """``Task.Strategy`` is a name or a callable, called with the task, the application and the consumer."""
        need = "Task.Strategy is instantiated with (task, app, consumer)"
        assert Task.Strategy == "celery.worker.strategy:default", broken("worker/app.py", need)
        assert "instantiate(self.Strategy, self, app, consumer" in source(Task.start_strategy), broken(
            "worker/strategy.py", need
        )

    def test_the_consumer_calls_it_with_five_values(self) -> None:
        """By position: message, payload, ack, reject, callbacks; the task's name is in the message's headers."""
        told: list[tuple[Any, ...]] = []
        consumer: Any = SimpleNamespace(
            strategies={"speedinfer.generate": lambda *values: told.append(values)},
            on_unknown_message=None,
            on_unknown_task=None,
            on_invalid_task=None,
            on_task_message=set(),
            call_soon_ack=None,
            _restore_prefetch_count_after_connection_restart=None,
            _maximum_prefetch_restored=True,
        )
        message = SimpleNamespace(headers={"task": "speedinfer.generate"}, ack_log_error=None, reject_log_error=None)
        Consumer.create_task_handler(consumer)(message)
        assert [(len(values), values[0]) for values in told] == [(5, message)], broken(
            "worker/strategy.py", "a strategy is called with (message, payload, ack, reject, callbacks)"
        )

    def test_the_pool_takes_a_function_with_callbacks(self) -> None:
        """It runs ``target(*args)`` in a greenlet, and insists on both callbacks."""
        assert parameters(BasePool.apply_async) == ["self", "target", "args", "kwargs", "options"], broken(
            "worker/strategy.py", "pool.apply_async(target, args=…)"
        )
        assert parameters(TaskPool.on_apply)[:6] == [
            *("self", "target", "args", "kwargs", "callback", "accept_callback"),
        ], broken("worker/strategy.py", "the gevent pool takes callback= and accept_callback=")

    @pytest.mark.parametrize("name", ["task_reserved", "task_accepted", "task_ready"])
    def test_the_state_of_requests_is_kept_by_functions_of_a_request(self, name: str) -> None:
        """What `celery inspect` shows."""
        assert parameters(getattr(state, name))[0] == "request", broken(
            "worker/strategy.py", f"celery.worker.state.{name}(request) keeps what inspect shows"
        )

    def test_the_state_needs_of_a_request_what_ours_has(self) -> None:
        """An id, a name, and that it can be referred to weakly."""
        from tests.jobs import delivery
        from worker.strategy import JobRequest

        request = JobRequest(SimpleNamespace(name="speedinfer.generate"), delivery(), "host")
        state.task_reserved(request)
        state.task_accepted(request)
        assert request in state.active_requests
        assert state.requests[request.id] is request
        state.task_ready(request)
        assert request not in state.active_requests
        assert request.id not in state.requests, broken("worker/strategy.py", "task_ready forgets a request")
        assert state.total_count["speedinfer.generate"] >= 1

    def test_inspect_asks_a_request_for_its_info(self) -> None:
        """With one argument, or none."""
        from worker.strategy import JobRequest

        assert "request.info(" in source(Commands.active), broken("worker/strategy.py", "inspect active calls info(…)")
        assert parameters(JobRequest.info) == ["self", "safe"]


class TestApp:
    """worker/app.py: steps, signals, remote control, reconnecting."""

    def test_consumers_are_made_with_worker_options(self) -> None:
        """By keyword, to be passed on as without_mingle and the like."""
        need = "the worker passes worker_options= to its consumer"
        assert "worker_options=w.options" in source(components.Consumer.create), broken("worker/app.py", need)
        assert "worker_options" in parameters(Consumer.__init__), broken("worker/app.py", need)

    @pytest.mark.parametrize("name", ["mingle:Mingle", "gossip:Gossip", "heart:Heart"])
    def test_what_we_leave_out_can_be_left_out(self, name: str) -> None:
        """By the option that we pass."""
        module, _, step = name.partition(":")
        found = getattr(__import__(f"celery.worker.consumer.{module}", fromlist=[step]), step)
        option = {"Mingle": "without_mingle", "Gossip": "without_gossip", "Heart": "without_heartbeat"}[step]
        assert option in parameters(found.__init__), broken("worker/app.py", f"{step} is left out by {option}")

    def test_the_consumers_steps_are_named(self) -> None:
        """So that remote control can be replaced by ours, and nothing else."""
        from worker.app import JobConsumer

        theirs: list[str] = list(Consumer.Blueprint.default_steps)
        ours = JobConsumer.Blueprint.default_steps
        need = "Consumer.Blueprint.default_steps names celery.worker.consumer.control:Control"
        assert theirs.count("celery.worker.consumer.control:Control") == 1, broken("worker/app.py", need)
        assert [mine for mine in ours if mine not in theirs] == ["worker.remote_control:SteadyControl"]
        assert len(ours) == len(theirs)

    def test_the_control_step_starts_a_box(self) -> None:
        """By attributes that it takes from the box."""
        made = source(Control.__init__)
        for name in ("box", "start", "stop", "shutdown"):
            assert f"self.{name} = " in made, broken("worker/app.py", f"Control.__init__ sets self.{name}")
        for name in ("start", "stop", "shutdown"):
            assert callable(getattr(pidbox.gPidbox, name)), broken("worker/app.py", f"gPidbox has {name}")

    def test_the_boxs_loop_ends_with_its_connection(self) -> None:
        """It is the reason for ours, which calls it again; it returns when the box is shut down."""
        assert parameters(pidbox.gPidbox.loop) == ["self", "c"], broken("worker/app.py", "gPidbox.loop(consumer)")
        assert "spawn_n(self.loop, c)" in source(pidbox.gPidbox.start), broken(
            "worker/app.py", "gPidbox.start spawns self.loop"
        )
        assert "except socket.timeout" in source(pidbox.gPidbox.loop)
        assert "connection_errors" not in source(pidbox.gPidbox.loop), broken(
            "worker/app.py", "gPidbox.loop does not outlive its connection (else ours is not needed any more)"
        )

    def test_commands_say_whether_they_only_read(self) -> None:
        """``Panel.meta`` has a type for each handler, by the name of its function."""
        need = "control.Panel.meta[name].type is 'inspect' for what reads and 'control' for what changes"
        kinds = {handler.__name__: control.Panel.meta[handler.__name__].type for handler in control.Panel.data.values()}
        assert set(kinds.values()) == {"inspect", "control"}, broken("worker/app.py", need)
        assert {"ping", "active", "stats", "registered", "active_queues"} <= _of("inspect", kinds)
        assert {"revoke", "terminate", "shutdown", "pool_restart", "cancel_consumer", "rate_limit"} <= _of(
            "control", kinds
        )

    def test_our_box_takes_only_what_reads(self) -> None:
        """None of Celery's commands can end a job without a settlement."""
        from worker.remote_control import READ, SteadyPidbox

        consumer: Any = SimpleNamespace(
            app=Celery("test", set_as_current=False), hostname="h", controller=SimpleNamespace(use_eventloop=False)
        )
        consumer.app.conf.broker_url = "memory://"
        handlers = SteadyPidbox(consumer).node.handlers
        reading = {name for name, handler in handlers.items() if getattr(handler, "__name__", "") in READ}
        assert reading >= READ
        assert {"revoke", "terminate", "shutdown", "pool_restart", "hello", "objgraph"} <= set(handlers) - reading
        for name in set(handlers) - reading:
            assert "refused" in handlers[name](None, task_id="1", anything="else")["error"]

    def test_a_worker_is_told_to_stop_by_the_state(self) -> None:
        """0 is an exit code and not "do not stop"."""
        need = "state.should_stop = 0 ends the loop"
        assert (state.should_stop, state.should_terminate) == (None, None)
        state.should_stop = 0  # type: ignore[assignment]  # the stubs know only the value it starts with
        try:
            with pytest.raises(SystemExit) as ended:
                state.maybe_shutdown()
        finally:
            state.should_stop = None
        assert type(ended.value).__name__ == "WorkerShutdown", broken("worker/app.py", need)
        assert "state.maybe_shutdown()" in source(synloop), broken("worker/app.py", need)

    def test_reconnecting_is_one_method(self) -> None:
        """Which ours replaces, with intervals of its own."""
        assert parameters(Consumer.ensure_connected) == ["self", "conn"], broken(
            "worker/app.py", "Consumer.ensure_connected(conn) returns a connection"
        )
        wanted = {"errback", "max_retries", "interval_start", "interval_step", "interval_max", "callback"}
        assert wanted <= set(parameters(PrivateConnection._ensure_connection)), broken(
            "worker/app.py", "Connection.ensure_connection takes intervals"
        )

    def test_steps_can_be_added_to_a_worker(self) -> None:
        """After the pool, which knows how many greenlets it has."""
        assert isinstance(Celery("test", set_as_current=False).steps["worker"], set), broken(
            "worker/app.py", "app.steps['worker'] is a set"
        )
        assert components.Pool.name is None or isinstance(components.Pool.name, str)
        assert {"start", "stop", "terminate"} <= set(dir(bootsteps.StartStopStep))
        assert TaskPool.is_green is True, broken("worker/app.py", "the gevent pool says is_green")


class TestTransport:
    """worker/transport.py: kombu's virtual transport over Redis, with our own source of messages."""

    def test_the_loop_drains_with_a_timeout(self) -> None:
        """And takes socket.timeout for silence; a transport without an event loop of its own is drained so."""
        need = "synloop calls connection.drain_events(timeout=2.0) and lets socket.timeout pass"
        assert "connection.drain_events(timeout=2.0) except socket.timeout: pass" in source(synloop), broken(
            "worker/transport.py", need
        )
        assert socket.timeout is TimeoutError

    @pytest.mark.parametrize(
        ("owner", "name", "takes"),
        [
            (kombu_redis.Transport, "drain_events", ["self", "connection", "timeout"]),
            (VirtualChannel, "basic_consume", ["self", "queue", "no_ack", "callback", "consumer_tag", "kwargs"]),
            (RedisChannel, "basic_cancel", ["self", "consumer_tag"]),
            (RedisChannel, "close", ["self"]),
            (RedisChannel, "_new_queue", ["self", "queue", "auto_delete", "kwargs"]),
            (RedisChannel, "_queue_bind", ["self", "exchange", "routing_key", "pattern", "queue"]),
            (RedisChannel, "_put", ["self", "queue", "message", "kwargs"]),
            (RedisChannel, "_purge", ["self", "queue"]),
            (
                RedisChannel,
                "_delete",
                ["self", "queue", "exchange", "routing_key", "pattern", "args", "kwargs"],
            ),
            (RedisChannel, "maybe_refresh_binding_expiry", ["self"]),
            (RedisChannel, "conn_or_acquire", ["self", "client"]),
            (kombu_redis.QoS, "append", ["self", "message", "delivery_tag"]),
            (kombu_redis.QoS, "ack", ["self", "delivery_tag"]),
            (kombu_redis.QoS, "reject", ["self", "delivery_tag", "requeue"]),
            (kombu_redis.QoS, "can_consume", ["self"]),
            (kombu_redis.QoS, "restore_unacked_once", ["self", "stderr"]),
            (kombu_redis.QoS, "restore_visible", ["self", "start", "num", "interval"]),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_we_replace_is_there_and_takes_the_same(self, owner: type, name: str, takes: list[str]) -> None:
        """An override that nobody calls any more would let the stock behaviour back in."""
        assert hasattr(owner, name), broken("worker/transport.py", f"{owner.__name__}.{name} exists")
        assert parameters(getattr(owner, name)) == takes, broken(
            "worker/transport.py", f"{owner.__name__}.{name} takes {', '.join(takes)}"
        )

    @pytest.mark.parametrize(
        ("method", "calls"),
        [
            (VirtualChannel.basic_cancel, "self._tag_to_queue"),
            (VirtualChannel.basic_cancel, "self._consumers"),
            (VirtualChannel.close, "self._qos.restore_unacked_once()"),
            (VirtualChannel.queue_bind, "self._queue_bind("),
            (VirtualChannel.queue_purge, "self._purge("),
            (VirtualChannel.queue_delete, "self._delete("),
            (VirtualChannel.queue_declare, "self._new_queue("),
            (RedisChannel._queue_bind, "self._fanout_queues[queue] = ("),
            (RedisChannel._queue_bind, "self.keyprefix_queue % (exchange,)"),
            (RedisChannel._queue_bind, "self.sep.join([routing_key or '', pattern or '', queue or ''])"),
        ],
        ids=lambda value: getattr(value, "__qualname__", value),
    )
    def test_what_we_replace_is_called_where_we_think(self, method: Functions, calls: str) -> None:
        """And the names that we touch are the ones that are used."""
        assert calls in source(method), broken("worker/transport.py", f"{method.__qualname__} uses {calls}")

    def test_a_channel_has_a_qos_of_its_class(self) -> None:
        """``Channel.QoS`` is what is made for ``channel.qos``."""
        assert issubclass(RedisChannel.QoS, virtual.QoS), broken("worker/transport.py", "Channel.QoS is a class")
        assert VirtualChannel.qos.fget is not None
        assert "self.QoS(self)" in source(VirtualChannel.qos.fget), broken("worker/transport.py", "Channel.QoS is made")

    def test_a_message_is_made_of_a_raw_dictionary(self) -> None:
        """With the headers as they are: one of ours holds an object that is never encoded."""
        delivery = object()
        raw = {
            "body": "",
            "content-type": "application/x-speedinfer-delivery",
            "content-encoding": "utf-8",
            "headers": {"task": "speedinfer.generate", "speedinfer-delivery": delivery},
            "properties": {"delivery_tag": "1.1", "delivery_info": {"exchange": "", "routing_key": "m"}},
        }
        channel: Any = None
        message = virtual.Message(raw, channel=channel)
        assert message.headers["speedinfer-delivery"] is delivery, broken(
            "worker/transport.py", "kombu's Message keeps its headers"
        )
        assert message.delivery_tag == "1.1"

    def test_a_transport_says_that_it_has_no_event_loop(self) -> None:
        """``implements.asynchronous`` decides which of Celery's loops is run."""
        from worker.transport import Transport

        assert kombu_redis.Transport.implements.asynchronous is True
        assert Transport.implements.asynchronous is False, broken(
            "worker/transport.py", "implements.extend(asynchronous=)"
        )

    def test_priority_lists_are_named_as_we_name_them(self) -> None:
        """A separator and the step."""
        assert kombu_redis.PRIORITY_STEPS == [0, 3, 6, 9], broken("worker/keys.py", "kombu's priorities are 0, 3, 6, 9")
        assert RedisChannel.sep == "\x06\x16", broken("worker/keys.py", "kombu separates them by \\x06\\x16")


def _of(kind: str, kinds: dict[str, str]) -> set[str]:
    return {name for name, found in kinds.items() if found == kind}
