"""A way to Redis that a test can close for one worker alone."""

import redis


class Line:
    """A worker's own way to Redis, which a test can close: its user is let in no more."""

    def __init__(self, client: redis.Redis, url: str) -> None:
        self._client = client
        self.url = url.replace("redis://", "redis://walled:secret@")
        self.open()

    def open(self) -> None:
        """Let the worker in."""
        self._send("ACL", "SETUSER", "walled", "on", ">secret", "~*", "&*", "+@all")

    def close(self) -> None:
        """Keep the worker out, and hang up on it."""
        self._send("ACL", "SETUSER", "walled", "off")
        self._send("CLIENT", "KILL", "USER", "walled")

    def forget(self) -> None:
        """Remove the user."""
        self._send("ACL", "DELUSER", "walled")

    def _send(self, *words: str) -> None:
        self._client.execute_command(*words)  # type: ignore[no-untyped-call] # redis-py's
