"""Runs the Lua scripts over one connection, and loads them again where the server has forgotten them."""

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

from redis.exceptions import NoScriptError

from worker import lua
from worker.redis_link import RedisUnavailable

Argument = str | bytes | int


class Link(Protocol):
    """What scripts need of a connection to Redis."""

    def call(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Send commands in one round trip and return their replies; a missing script is a reply."""
        ...


class Scripts:
    """Some of the scripts, over one connection."""

    def __init__(self, link: Link, names: Sequence[str]) -> None:
        """Read the scripts; nothing is sent."""
        self._link = link
        self._sources = {name: lua.load(name) for name in names}
        self._shas = {
            name: hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
            for name, source in self._sources.items()
        }

    def command(self, name: str, keys: Sequence[str], arguments: Sequence[Argument]) -> list[Argument]:
        """Return the command that runs a script."""
        return ["EVALSHA", self._shas[name], len(keys), *keys, *arguments]

    def run(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Send commands in one round trip and return their replies.

        Raises:
            RedisUnavailable: nothing is known of what was done; the same commands may be sent again.
        """
        replies = self._link.call(commands)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            # The server was restarted or its scripts were flushed. What was done already is safe to repeat.
            self._link.call([["SCRIPT", "LOAD", source] for source in self._sources.values()])
            replies = self._link.call(commands)
        for reply in replies:
            if isinstance(reply, NoScriptError):
                # Forgotten again in between: asked anew, like everything in an outage.
                raise RedisUnavailable(type(reply).__name__) from reply
        return replies
