"""What is wrong with a Redis that one cannot work with, in words for operators.

What the server said is looked at and not repeated: it may quote a command, and so a job.
"""

import ssl
from collections.abc import Iterator
from typing import Final

import redis
from redis.exceptions import NoPermissionError
from redis.sentinel import MasterNotFoundError

_SAID: Final = (
    ("WRONGPASS", "refuses the user or password: put valid ones into redis_url and redis_password"),
    ("invalid username-password", "refuses the user or password: put valid ones into redis_url and redis_password"),
    ("NOAUTH", "wants a user or password: put them into redis_url and redis_password"),
    ("Authentication required", "wants a user or password: put them into redis_url and redis_password"),
    ("HELLO must be called", "wants a user or password: put them into redis_url and redis_password"),
    ("without any password configured", "has no password for this user: take it out of redis_url and redis_password"),
    (
        "DB index is out of range",
        "has no database of that number: redis_url must end in one that its `databases` allows",
    ),
    ("WRONG_VERSION_NUMBER", "speaks no TLS at this port: redis_url must begin with redis://, or name its TLS port"),
    (
        "EOF occurred in violation",
        "ends what is to be TLS: see whether it is a TLS port, and wants a client certificate (redis_tls.cert_file)",
    ),
    ("CERTIFICATE_REQUIRED", "wants a client certificate: name it in redis_tls.cert_file and redis_tls.key_file"),
)
"""What redis-py's errors, and those beneath them, may contain, and what it means."""


def fault_of(error: BaseException) -> str | None:
    """Return what is wrong and what to do about it, as said of the server; None where there is nothing to add."""
    errors = list(_chain(error))
    for each in errors:
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"has a certificate that is not trusted ({each.verify_message}): see redis_tls.ca_file"
        text = str(each)
        for said, meaning in _SAID:
            if said in text:
                return meaning
    for each in errors:
        if isinstance(each, redis.AuthenticationError):
            return _SAID[0][1]
        if isinstance(each, NoPermissionError):
            return "lets this user not do what is asked: give it the rights of its role (deploy/redis/users.acl)"
        if isinstance(each, MasterNotFoundError):
            return "has no primary that a Sentinel knows: see the service and the Sentinels in redis_url, and their log"
    return None


def described(error: BaseException) -> str:
    """Return an error as logs show it: its type, the system's words for it, and what to do about it."""
    words = fault_of(error) or next((e.strerror for e in _chain(error) if isinstance(e, OSError) and e.strerror), None)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
