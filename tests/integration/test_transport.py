"""The transport on a real Redis: jobs come from the intake alone, everything else goes kombu's way and leaves nothing behind."""

import contextlib
import socket
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis
from celery import Celery
from gevent.event import Event
from kombu import Connection, Exchange, Queue
from kombu.pidbox import Mailbox
from kombu.utils.json import dumps

from tasks.delivery import Delivery
from tests.committer_contract import KEYS, OTHER_MODEL, jobs
from tests.integration.bench import state
from tests.jobs import MODEL, delivery, job_json
from tests.waiting import wait_until
from worker.transport import DELIVERY_HEADER, JobsAreNotKombus
from worker.transport_options import JobsOption, RedisOption

QUEUE = KEYS.jobs(MODEL)


@dataclass
class Source:
    """What the transport needs of the intake, filled by the test."""

    ready: Any = field(default_factory=Event)
    opened: list[str] = field(default_factory=list)
    given_back: list[Delivery] = field(default_factory=list)
    waiting: deque[Delivery] = field(default_factory=deque)

    def deliver(self, *deliveries: Delivery) -> None:
        """Let deliveries wait to be taken."""
        self.waiting.extend(deliveries)
        self.ready.set()

    def open_queue(self, queue: str) -> None:
        """Remember what is claimed from."""
        self.opened.append(queue)

    def close_queue(self, queue: str) -> None:
        """Forget it."""
        self.opened.remove(queue)

    def take(self) -> Iterator[Delivery]:
        """Give out what waits."""
        self.ready.clear()
        while self.waiting:
            yield self.waiting.popleft()

    def give_back(self, one: Delivery) -> None:
        """Remember what was given back."""
        self.given_back.append(one)


@pytest.fixture
def source() -> Source:
    """A source of jobs."""
    return Source()


def options(source: Source, url: str = "redis://nowhere") -> dict[str, Any]:
    """Return the transport's options as the application sets them."""
    own = {"redis": RedisOption(url), "job_source": JobsOption(source)}
    return {**own, "jobs_prefix": KEYS.jobs(""), "global_keyprefix": KEYS.prefix}


def connected(url: str, source: Source) -> Connection:
    """Return a connection through the transport, as the application makes them."""
    return Connection("redis://", transport="worker.transport:Transport", transport_options=options(source, url))


@pytest.fixture
def connection(valkey: redis.Redis, redis_url: str, source: Source) -> Iterator[Connection]:
    """A connection through the transport."""
    assert valkey.dbsize() == 0
    with connected(redis_url, source) as connection:
        yield connection


def consume(connection: Connection, *queues: str) -> tuple[Any, list[Any]]:
    """Consume from queues of jobs; return the consumer and the messages that it gets."""
    messages: list[Any] = []
    consumer = connection.Consumer(
        [Queue(queue, routing_key=queue) for queue in queues], on_message=messages.append, accept=None
    )
    consumer.consume()
    return consumer, messages


class TestJobs:
    def test_consuming_opens_the_queue_and_touches_nothing_in_redis(
        self, valkey: redis.Redis, connection: Connection, source: Source
    ) -> None:
        """No binding, no key, no command that takes from the list."""
        valkey.lpush(QUEUE, *jobs("a"))
        before = state(valkey)
        consume(connection, QUEUE, KEYS.jobs(OTHER_MODEL))
        assert source.opened == [QUEUE, KEYS.jobs(OTHER_MODEL)]
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.01)
        assert state(valkey) == before

    def test_every_delivery_that_waits_is_delivered_by_one_drain(self, connection: Connection, source: Source) -> None:
        """In order, each as the object that it is."""
        _, messages = consume(connection, QUEUE)
        deliveries = [delivery(job_json(job_id=f"j-{n}"), tag=f"1.{n}") for n in range(5)]
        source.deliver(*deliveries)
        connection.drain_events(timeout=1)
        assert [message.headers[DELIVERY_HEADER] for message in messages] == deliveries
        assert [message.headers["task"] for message in messages] == ["speedinfer.generate"] * 5
        assert all(message.headers[DELIVERY_HEADER] is one for message, one in zip(messages, deliveries, strict=True))

    def test_no_prompt_is_in_a_message(self, connection: Connection, source: Source) -> None:
        """But in the delivery: Celery logs messages that it does not understand."""
        _, messages = consume(connection, QUEUE)
        source.deliver(delivery(job_json(prompt="a secret")))
        connection.drain_events(timeout=1)
        (message,) = messages
        assert message.body in ("", b"", None)
        assert "a secret" not in repr(message.properties)
        assert "a secret" not in repr(
            {name: value for name, value in message.headers.items() if name != DELIVERY_HEADER}
        )

    @pytest.mark.parametrize("end", ["ack", "reject", "requeue", "ack_log_error"])
    def test_what_kombu_does_to_a_message_does_nothing_to_the_job(
        self, valkey: redis.Redis, connection: Connection, source: Source, end: str
    ) -> None:
        """The intake ends it, and nobody else."""
        _, messages = consume(connection, QUEUE)
        source.deliver(delivery())
        connection.drain_events(timeout=1)
        before = state(valkey)
        (message,) = messages
        arguments = [None, ()] if end == "ack_log_error" else []
        getattr(message, end)(*arguments)
        assert state(valkey) == before
        assert source.given_back == []

    def test_acknowledging_costs_no_round_trip(
        self, valkey: redis.Redis, connection: Connection, source: Source
    ) -> None:
        """The stock transport pays two commands for each."""
        _, messages = consume(connection, QUEUE)
        source.deliver(*(delivery(tag=f"1.{n}") for n in range(10)))
        before = _commands(valkey)
        connection.drain_events(timeout=1)
        for message in messages:
            message.ack()
        assert _commands(valkey) - before == 1

    def test_closing_restores_nothing_and_stops_claiming(
        self, valkey: redis.Redis, connection: Connection, source: Source
    ) -> None:
        """Jobs go on running while a connection is made anew."""
        _, messages = consume(connection, QUEUE)
        source.deliver(delivery())
        connection.drain_events(timeout=1)
        connection.close()
        assert len(messages) == 1
        assert source.opened == []
        assert list(valkey.scan_iter()) == []
        assert source.given_back == []

    def test_cancelling_stops_claiming_from_that_queue(self, connection: Connection, source: Source) -> None:
        """Deliveries of it that come late go back; those of others are delivered."""
        consumer, messages = consume(connection, QUEUE, KEYS.jobs(OTHER_MODEL))
        consumer.cancel_by_queue(QUEUE)
        assert source.opened == [KEYS.jobs(OTHER_MODEL)]
        late, other = delivery(), delivery(queue_model=OTHER_MODEL, tag="1.2")
        source.deliver(late, other)
        connection.drain_events(timeout=1)
        assert [message.headers[DELIVERY_HEADER] for message in messages] == [other]
        assert source.given_back == [late]
        consumer.cancel()
        assert source.opened == []

    def test_a_queue_can_be_consumed_again(self, connection: Connection, source: Source) -> None:
        """By another channel, as after a connection was made anew."""
        consumer, _ = consume(connection, QUEUE)
        consumer.cancel()
        _, messages = consume(connection, QUEUE)
        source.deliver(delivery())
        connection.drain_events(timeout=1)
        assert len(messages) == 1

    def test_how_much_is_claimed_is_not_kombus_to_say(self, connection: Connection, source: Source) -> None:
        """A prefetch count neither holds jobs up nor lets more in."""
        consumer, messages = consume(connection, QUEUE)
        consumer.qos(prefetch_count=1)
        source.deliver(*(delivery(tag=f"1.{n}") for n in range(10)))
        connection.drain_events(timeout=1)
        assert len(messages) == 10

    def test_jobs_are_not_purged_or_deleted(self, valkey: redis.Redis, connection: Connection) -> None:
        """Each is owed a settlement."""
        valkey.lpush(QUEUE, *jobs("a"))
        channel: Any = connection.channel()
        Queue(QUEUE, Exchange("jobs"), routing_key=QUEUE)(channel).declare()
        with pytest.raises(JobsAreNotKombus):
            channel.queue_purge(QUEUE)
        with pytest.raises(JobsAreNotKombus):
            channel.queue_delete(QUEUE)
        assert valkey.llen(QUEUE) == 1

    def test_a_job_sent_through_it_is_in_the_queue_that_workers_read(
        self, valkey: redis.Redis, redis_url: str, source: Source
    ) -> None:
        """As by `celery -A worker.celery call`: the prefix of kombu's own keys is not put before a queue's whole name."""
        app = Celery("test", broker="redis://", set_as_current=False)
        app.conf.broker_transport = "worker.transport:Transport"
        app.conf.broker_transport_options = options(source, redis_url)
        with app.connection_for_write() as connection:
            app.send_task("speedinfer.generate", args=[{"job_id": "a"}], queue=QUEUE, connection=connection)
            app.send_task("speedinfer.generate", args=[{"job_id": "b"}], queue=QUEUE, priority=9, connection=connection)
        app.close()
        assert sorted(valkey.scan_iter()) == [QUEUE.encode(), f"{QUEUE}\x06\x169".encode()]
        assert (valkey.ttl(QUEUE), valkey.llen(QUEUE)) == (-1, 1)


class TestEverythingElse:
    def test_other_queues_go_kombus_way_and_leave_nothing_for_ever(
        self, valkey: redis.Redis, connection: Connection
    ) -> None:
        """Such as those for replies to remote control: under the namespace, with a time to live."""
        queue = Queue("replies", Exchange("reply", type="direct"), routing_key="here", auto_delete=True)
        got: list[Any] = []

        def take(body: Any, message: Any) -> None:
            got.append(body)
            message.ack()

        with connection.Consumer([queue], callbacks=[take]):
            with connection.Producer() as producer:
                producer.publish({"pong": 1}, exchange="reply", routing_key="here", declare=[queue])
            keys = list(valkey.scan_iter())
            assert keys
            assert all(key.startswith(KEYS.prefix.encode()) for key in keys)
            assert all(valkey.ttl(key) > 0 for key in keys)
            connection.drain_events(timeout=30)
        assert got == [{"pong": 1}]

    def test_the_options_can_be_shown_without_the_jobs(self, source: Source) -> None:
        """Remote control shows them."""
        source.deliver(delivery(job_json(prompt="a secret")))
        assert dumps({"options": options(source)}) == (
            '{"options": {"redis": "<redis>", "job_source": "<jobs>", "jobs_prefix": "speedinfer:jobs:", "global_keyprefix": "speedinfer:"}}'
        )
        assert "secret" not in repr(options(source))

    def test_remote_control_is_heard_beside_jobs(self, valkey: redis.Redis, redis_url: str, source: Source) -> None:
        """On a connection of its own, as Celery's mailbox uses it; nothing is left of it."""
        mailbox: Any = Mailbox("celery", type="fanout", accept=["json"])
        heard: list[str] = []
        with connected(redis_url, source) as listening, connected(redis_url, source) as asking:
            box = mailbox(listening)
            node = box.Node(
                "w1", channel=listening.channel(), handlers={"ping": lambda _state, **_: heard.append("ping")}
            )
            node.listen(callback=node.handle_message).consume()

            def is_subscribed() -> bool:
                with contextlib.suppress(socket.timeout):
                    listening.drain_events(timeout=0.01)
                return bool(valkey.pubsub_numpat())

            wait_until(is_subscribed, description="it is subscribed")
            mailbox(asking)._broadcast("ping")
            listening.drain_events(timeout=30)
        assert heard == ["ping"]
        left = [key for key in valkey.scan_iter() if valkey.ttl(key) == -1]
        assert left == []


def _commands(client: redis.Redis) -> int:
    return int(client.info("stats")["total_commands_processed"])
