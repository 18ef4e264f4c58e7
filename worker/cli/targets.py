"""What a command works on: a worker's whole settings, or only a Redis and a namespace."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from worker.cli.failures import redis_failures
from worker.keys import Keys

if TYPE_CHECKING:
    import redis

    from settings.schema import Settings

_CONFIG = "SPEEDINFER_CONFIG"


@dataclass(frozen=True, slots=True)
class RedisTarget:
    """One namespace in one Redis; ``address`` is the URL without what is secret in it."""

    url: str = field(repr=False)
    address: str
    namespace: str

    @property
    def keys(self) -> Keys:
        """The namespace's keys."""
        return Keys(self.namespace)

    @contextmanager
    def connected(self) -> "Iterator[redis.Redis]":
        """Give a client; what redis-py raises within becomes a failure that names the address."""
        from worker.connections import redis_client

        client = redis_client(self.url)
        try:
            with redis_failures(self.address):
                yield client
        finally:
            client.close()


def worker_settings(config: Path | None) -> "Settings":
    """Return the settings of this file and the environment. Raises ConfigurationError."""
    from settings.load import load_settings

    return load_settings(config, os.environ, socket.gethostname())


def optional_settings(config: Path | None) -> "Settings | None":
    """Return the settings where a file is named, here or in the environment. Raises ConfigurationError."""
    return worker_settings(config) if config or os.environ.get(_CONFIG) else None


def target_of(settings: "Settings") -> RedisTarget:
    """Return the Redis and namespace of a worker's settings."""
    return RedisTarget(settings.redis_url.get_secret_value(), settings.redis_address, settings.namespace)


def redis_target(config: Path | None, redis_url: str | None, namespace: str | None) -> RedisTarget:
    """Return what the options say, else the configuration where one is named, else the environment, else the defaults.

    Raises ConfigurationError. A configuration from the environment is not looked at where both options are given.
    """
    from settings.addresses import redis_address
    from settings.load import redis_url_from

    known = None if redis_url and namespace and not config else optional_settings(config)
    said = _checked("redis_url", "--redis-url", redis_url)
    url = known.redis_url if known and not said else redis_url_from(os.environ, said)
    name = _checked("namespace", "--namespace", namespace) or (known and known.namespace)
    name = name or _from_environment("namespace")
    return RedisTarget(url.get_secret_value(), redis_address(url), name)


def _from_environment(name: str) -> Any:
    from settings.schema import Settings

    variable = f"SPEEDINFER_{name.upper()}"
    return _checked(name, variable, os.environ.get(variable)) or Settings.model_fields[name].default


def _checked(name: str, source: str, value: str | None) -> Any:
    """Return the value as the settings' field of this name takes it, None for none. Raises ConfigurationError."""
    from pydantic import TypeAdapter, ValidationError

    from settings.fields import Refusal, refusals_of
    from settings.load import ConfigurationError
    from settings.problems import Problem, shown
    from settings.schema import Settings

    if not value:
        return None
    declared = Settings.model_fields[name]
    kind: Any = Annotated[(declared.annotation, *declared.metadata)]
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        reason = refusals_of(error)[0].reason
        raise ConfigurationError([Problem(source, "", shown(Refusal((name,), value, reason)), reason)]) from None
