"""The kombu transport: jobs come from the intake, all else (remote control, events) through kombu's own Redis transport.

The stock transport loses jobs when a worker is killed and dies of malformed messages (docs/architecture.md). Here a job reaches
Celery only when it is claimed, as a message made in memory, and kombu neither acknowledges nor restores it: the intake ends it.
"""

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import redis
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual

from tasks.delivery import Delivery
from tasks.job import TASK_NAME

if TYPE_CHECKING:
    from worker.transport_options import JobSource, RedisOption

DELIVERY_HEADER: Final = "speedinfer-delivery"
_REPLY_MS: Final = 600_000
"""How long a queue for replies to remote control lives, with its binding; kombu itself would keep them for ever.

Always given by PEXPIRE: kombu's client puts its prefix before that command's key, and not before EXPIRE's.
"""


class JobsAreNotKombus(Exception):
    """Something asked kombu to change a queue of jobs, such as ``celery purge``."""


class QoS(virtual.QoS):
    """Acknowledges nothing and restores nothing: a claim is ended by the intake alone."""

    def append(self, message: Any, delivery_tag: str) -> None:
        """Do not remember the message."""

    def ack(self, delivery_tag: Any) -> None:
        """Do nothing."""

    def reject(self, delivery_tag: Any, requeue: Any = False) -> None:  # noqa: FBT002 - kombu's signature
        """Do nothing."""

    def can_consume(self) -> bool:
        """Return True: how much is claimed is the intake's to say."""
        return True

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Do nothing: what was claimed stays claimed when a connection closes."""

    def restore_visible(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there is no visibility timeout."""


class Channel(kombu_redis.Channel):
    """A channel that leaves queues of jobs to the intake."""

    QoS: Any = QoS
    connection: Any
    _fanout_queues: dict[str, tuple[str, str]]
    _q_for_pri: Callable[[str, int], str]
    keyprefix_fanout: str

    def _get_pool(self, asynchronous: bool = False) -> redis.ConnectionPool:  # noqa: FBT001, FBT002, ARG002 - kombu's signature
        """Connect as all else in the worker does: TLS, users, passwords and Sentinels are understood in one place."""
        pool: redis.ConnectionPool = self.connection.redis.pool(
            socket_timeout=self.socket_timeout,
            socket_connect_timeout=self.socket_connect_timeout,
            socket_keepalive=True,
            health_check_interval=self.health_check_interval,
        )
        self.keyprefix_fanout = self.keyprefix_fanout.format(db=pool.connection_kwargs.get("db") or 0)
        return pool

    def _is_jobs(self, queue: str) -> bool:
        return queue.startswith(self.connection.jobs_prefix)

    def basic_consume(self, queue: Any, no_ack: Any, callback: Any, consumer_tag: Any, **kwargs: Any) -> Any:
        """Have the intake claim from a queue of jobs; consume any other as kombu does."""
        if not self._is_jobs(queue):
            return super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        self._tag_to_queue[consumer_tag] = queue
        self._consumers.add(consumer_tag)
        self.connection.consume_jobs(queue, lambda raw: callback(self.Message(raw, channel=self)))
        return None

    def basic_cancel(self, consumer_tag: Any) -> Any:
        """Stop claiming from a queue of jobs; cancel any other as kombu does."""
        queue = self._tag_to_queue.get(consumer_tag)
        if queue is None or not self._is_jobs(queue):
            return super().basic_cancel(consumer_tag)
        self._consumers.discard(consumer_tag)
        del self._tag_to_queue[consumer_tag]
        if self.connection is not None:
            self.connection.cancel_jobs(queue)
        return None

    def close(self) -> None:
        """Close, and leave no queue of jobs claimed from."""
        for consumer_tag, queue in list(self._tag_to_queue.items()):
            if self._is_jobs(queue):
                self.basic_cancel(consumer_tag)
        super().close()

    def _new_queue(self, queue: str, **kwargs: Any) -> None:
        if not self._is_jobs(queue):
            super()._new_queue(queue, **kwargs)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if self._is_jobs(queue):
            return  # The queue's name is its address; kombu's binding would be one more key without a time to live.
        if self.typeof(exchange).type == "fanout":
            # Published and heard by Redis' own publish and subscribe: kombu's binding would have no reader.
            self._fanout_queues[queue] = (exchange, routing_key.replace("#", "*"))
            return
        key = self.keyprefix_queue % (exchange,)
        with self.conn_or_acquire() as client:
            client.sadd(key, self.sep.join([routing_key or "", pattern or "", queue or ""]))
            client.pexpire(key, _REPLY_MS)

    def maybe_refresh_binding_expiry(self) -> None:
        """Do nothing: the bindings above live long enough for a reply."""

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        if self._is_jobs(queue):
            # Its name is a whole key; kombu puts the prefix of all keys before it.
            super()._put(queue.removeprefix(self.global_keyprefix), message, **kwargs)
            return
        super()._put(queue, message, **kwargs)
        with self.conn_or_acquire() as client:
            client.pexpire(self._q_for_pri(queue, self._get_message_priority(message, reverse=False)), _REPLY_MS)

    def _purge(self, queue: str) -> int:
        if self._is_jobs(queue):
            msg = "queues of jobs are not purged through Celery: each job is owed a settlement"
            raise JobsAreNotKombus(msg)
        return int(super()._purge(queue))

    def _delete(self, queue: str, exchange: str, routing_key: str, pattern: str, *args: Any, **kwargs: Any) -> None:
        if self._is_jobs(queue):
            msg = "queues of jobs are not deleted through Celery: each job is owed a settlement"
            raise JobsAreNotKombus(msg)
        super()._delete(queue, exchange, routing_key, pattern, *args, **kwargs)


class Transport(kombu_redis.Transport):
    """A connection whose job messages come from ``transport_options['job_source']``."""

    Channel = Channel
    # Celery would run its own event loop over sockets; ours is woken by an event, under gevent.
    implements = kombu_redis.Transport.implements.extend(asynchronous=False)

    def __init__(self, client: Any, **kwargs: Any) -> None:
        """Consume no jobs yet."""
        super().__init__(client, **kwargs)
        self.jobs_prefix: str = client.transport_options["jobs_prefix"]
        self.redis: RedisOption = client.transport_options["redis"]
        self._source: JobSource = client.transport_options["job_source"].source
        self._job_callbacks: dict[str, Any] = {}

    def consume_jobs(self, queue: str, callback: Any) -> None:
        """Deliver a queue's jobs to ``callback`` from now on."""
        self._job_callbacks[queue] = callback
        self._source.open_queue(queue)

    def cancel_jobs(self, queue: str) -> None:
        """Deliver a queue's jobs no more."""
        if self._job_callbacks.pop(queue, None) is not None:
            self._source.close_queue(queue)

    def drain_events(self, connection: Any, timeout: float | None = None, **kwargs: Any) -> None:
        """Deliver every job that is ready; a connection without queues of jobs drains as kombu's does.

        Raises:
            socket.timeout: there was none within ``timeout`` seconds.
        """
        if not self._job_callbacks:
            super().drain_events(connection, timeout=timeout, **kwargs)
            return
        if not self._source.ready.wait(timeout):
            raise socket.timeout  # noqa: UP041 - the name under which kombu's callers catch it
        for delivery in self._source.take():
            self._deliver_job(delivery)

    def _deliver_job(self, delivery: Delivery) -> None:
        callback = self._job_callbacks.get(self.jobs_prefix + delivery.queue_model)
        if callback is None:
            self._source.give_back(delivery)
        else:
            callback(_message(delivery))


def _message(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery as kombu's raw message: its job travels as a header, never encoded again."""
    return {
        "body": "",
        "content-type": "application/x-speedinfer-delivery",
        "content-encoding": "utf-8",
        "headers": {"task": TASK_NAME, "id": delivery.tag, DELIVERY_HEADER: delivery},
        "properties": {
            "delivery_tag": delivery.tag,
            "delivery_info": {"exchange": "", "routing_key": delivery.queue_model},
        },
    }
