"""One connection to Redis that never repeats a command by itself.

redis-py's clients retry and reconnect beneath the caller. Here both matter: a script must be repeated with the same call number,
and a new connection has lost its client tracking. So the worker's loops hold a connection each, and see every break of it.
"""

import select
from collections.abc import Sequence
from typing import Any, Final

import redis
from gevent.monkey import get_original
from hiredis import pack_command
from redis.exceptions import (
    ClusterDownError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from worker.connections import connection_pool
from worker.redis_faults import described

Command = Sequence[str | bytes | int]

_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0)
"""What a poll tells of a connection that the other end has closed, beside what it always tells: that it was reset."""

_LATER: Final = (OutOfMemoryError, ReadOnlyError, ClusterDownError, TryAgainError, MovedError)
_LATER_WORDS: Final = ("MISCONF", "BUSY", "NOREPLICAS")
"""Answers of a server that will do the same command later: it is full, is a replica, cannot write its log, …"""


class RedisUnavailable(Exception):
    """Redis did not answer, or cannot do the work now. What was asked may or may not have been done."""


class RedisLink:
    """A connection of its own, made when first needed and made again after each break."""

    def __init__(self, url: str, *, socket_timeout: float = 5.0, connect_timeout: float = 2.0) -> None:
        """Keep the address; nothing is connected yet. RESP2 is spoken: invalidations then come as plain messages."""
        self._pool = connection_pool(
            url,
            protocol=2,
            socket_timeout=socket_timeout,
            socket_connect_timeout=connect_timeout,
            socket_keepalive=True,
            retry_on_error=[],
            health_check_interval=0,
        )
        self._connection: Any = None
        self.connects = 0
        """How often it was connected: a change means that what the server knew of the connection is gone."""

    def call(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands, then read their replies: one round trip.

        A missing script comes back as its NoScriptError, since the other commands were done.

        Raises:
            RedisUnavailable: the connection broke, or the server cannot work now.
            redis.ResponseError: the server refused a command: a fault of ours.
        """
        try:
            connection = self.connect()
            connection.send_packed_command([_packed(commands)], check_health=False)
            replies = [self._reply(connection) for _ in commands]
        except (RedisError, OSError) as error:
            self.close()
            raise RedisUnavailable(described(error)) from error
        try:
            return _checked(replies)
        except RedisUnavailable as error:
            if isinstance(error.__cause__, ReadOnlyError):
                self.close()  # It is a replica by now: a name, a proxy or a Sentinel may lead to the primary.
            raise

    def send(self, command: Command) -> None:
        """Send a command whose reply is read later.

        Raises:
            RedisUnavailable: the connection broke.
        """
        try:
            connection = self.connect()
            connection.send_packed_command([_packed([command])], check_health=False)
        except (RedisError, OSError) as error:
            self.close()
            raise RedisUnavailable(described(error)) from error

    def read(self, timeout: float | None = None) -> Any:
        """Return the next message of a subscribed connection.

        Raises:
            TimeoutError: none came within ``timeout`` seconds; the connection is whole.
            RedisUnavailable: the connection broke.
        """
        try:
            return self.connect().read_response(timeout=timeout, disconnect_on_error=False)
        except redis.TimeoutError as error:
            raise TimeoutError from error
        except (RedisError, OSError) as error:
            self.close()
            raise RedisUnavailable(described(error)) from error

    def connect(self) -> Any:
        """Return the connection, made if need be."""
        if self._connection is None:
            connection = self._pool.connection_class(**self._pool.connection_kwargs)
            connection.connect()
            self._connection = connection
            self.connects += 1
        return self._connection

    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()

    def has_broken(self) -> bool:
        """Tell whether the connection, over which nothing is asked at the moment, is gone; what is left of it is dropped."""
        if self._connection is None:
            return False
        # Not by redis-py, nor by gevent's poll: they may wait, and another greenlet would ask over the same connection meanwhile.
        poller = get_original("select", "poll")()
        poller.register(self._connection._sock, _HUNG_UP)  # noqa: SLF001 - redis-py gives it out in no other way
        is_broken = bool(poller.poll(0))
        if is_broken:
            self.close()
        return is_broken

    @staticmethod
    def _reply(connection: Any) -> Any:
        try:
            return connection.read_response()
        except ResponseError as error:
            return error


def _packed(commands: Sequence[Command]) -> bytes:
    """Return commands as they are sent. redis-py's own packing looks at each word once more, which costs as much again."""
    return b"".join([pack_command(tuple(command)) for command in commands])  # type: ignore[arg-type]  # its stub says: one word


def _checked(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, _LATER) or (isinstance(reply, ResponseError) and str(reply).startswith(_LATER_WORDS)):
            raise RedisUnavailable(str(reply)[:80]) from reply
        if isinstance(reply, ResponseError) and not isinstance(reply, NoScriptError):
            raise reply
    return replies
