"""Connections to Redis whose failures are counted."""

from collections.abc import Sequence
from typing import Any

from redis.exceptions import ResponseError

from worker.redis_link import Command, RedisLink, RedisUnavailable


class CountedLink(RedisLink):
    """A link that counts its failures in ``errors``, by kind: unavailable and refused."""

    def __init__(self, url: str, errors: dict[str, int]) -> None:
        """Keep the address; nothing is connected yet."""
        super().__init__(url)
        self._errors = errors

    def call(self, commands: Sequence[Command]) -> list[Any]:
        """Do as RedisLink.call does."""
        try:
            return super().call(commands)
        except RedisUnavailable:
            self._errors["unavailable"] += 1
            raise
        except ResponseError:
            self._errors["refused"] += 1
            raise

    def send(self, command: Command) -> None:
        """Do as RedisLink.send does."""
        try:
            super().send(command)
        except RedisUnavailable:
            self._errors["unavailable"] += 1
            raise

    def read(self, timeout: float | None = None) -> Any:
        """Do as RedisLink.read does; that nothing came is no failure."""
        try:
            return super().read(timeout)
        except RedisUnavailable:
            self._errors["unavailable"] += 1
            raise
