"""What the transport is given through Celery's options, in a form of which remote control shows nothing."""

from collections.abc import Iterable
from typing import Any, Literal, Protocol, overload

import redis

from tasks.delivery import Delivery
from worker.connections import connection_pool


class Ready(Protocol):
    """An event."""

    @overload
    def wait(self, timeout: None = None) -> Literal[True]: ...

    @overload
    def wait(self, timeout: float) -> bool: ...


class JobSource(Protocol):
    """Where claimed jobs come from."""

    @property
    def ready(self) -> Ready:
        """Set while there are deliveries to take."""
        ...

    def open_queue(self, queue: str) -> None:
        """Claim from a queue from now on."""
        ...

    def close_queue(self, queue: str) -> None:
        """Claim from a queue no more."""
        ...

    def take(self) -> Iterable[Delivery]:
        """Give out the deliveries that wait."""
        ...

    def give_back(self, delivery: Delivery) -> None:
        """Put a job that was not run back to the front of its queue."""
        ...


class JobsOption:
    """Carries the source through Celery's options. Remote control shows those, and must not show the jobs in hand."""

    __slots__ = ("source",)

    def __init__(self, source: JobSource) -> None:
        """Take what is carried."""
        self.source = source

    def __repr__(self) -> str:
        return "<jobs>"

    def __json__(self) -> str:
        """Return what kombu's serializer writes in its place."""
        return repr(self)


class RedisOption:
    """Carries the address of Redis through Celery's options, where remote control cannot show what is secret in it."""

    __slots__ = ("_url",)

    def __init__(self, url: str) -> None:
        """Take the whole URL."""
        self._url = url

    def pool(self, **options: Any) -> redis.ConnectionPool:
        """Return what makes connections by it."""
        return connection_pool(self._url, **options)

    def __repr__(self) -> str:
        return "<redis>"

    def __json__(self) -> str:
        """Return what kombu's serializer writes in its place."""
        return repr(self)
