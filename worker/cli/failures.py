"""How a command ends other than well: one line for people, and an exit code for scripts."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

_OUTPUT_ERRORS = {errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG}
NOT_RIGHT = 1
WRONG_USAGE = 2
UNREACHABLE = 3
UNKNOWN_HINT = "run it again with --debug to see where it comes from"


class Failure(Exception):
    """The command cannot do what was asked; each line of the message says what is wrong and what to do next."""

    exit_code: ClassVar[int] = NOT_RIGHT


class NotRight(Failure):
    """The thing that was checked or asked for is not as it should be."""


class WrongUsage(Failure):
    """The arguments or the configuration cannot be used."""

    exit_code = WRONG_USAGE


class Unreachable(Failure):
    """Redis or Triton does not answer."""

    exit_code = UNREACHABLE


def failure_of(error: Exception) -> Failure:
    """Return what an exception means to the user of a command that did not translate it itself."""
    if isinstance(error, Failure):
        return error
    import redis

    from settings.load import ConfigurationError
    from worker.sandbox.errors import SandboxError
    from worker.triton.endpoint import UnusableCertificates

    if isinstance(error, (ConfigurationError, UnusableCertificates)):
        return WrongUsage(str(error))
    if isinstance(error, redis.RedisError):
        return redis_failure(error, "the configured address")
    if isinstance(error, SandboxError):
        return NotRight(str(error))
    if isinstance(error, OSError) and is_output_error(error):
        return NotRight(f"the output cannot be written ({str(error.strerror).lower()}): write it elsewhere")
    return Failure(f"internal error ({type(error).__name__}): {UNKNOWN_HINT}")


def is_output_error(error: OSError) -> bool:
    """Tell whether stdout could not take what was written, as on a full disk."""
    return error.filename is None and error.errno in _OUTPUT_ERRORS


def redis_failure(error: Exception, address: str) -> Failure:
    """Return what an error of redis-py means; what the server said is not repeated, since it may quote a job."""
    import redis
    from redis.sentinel import MasterNotFoundError

    from worker.redis_faults import fault_of

    if fault := fault_of(error):
        kind = Unreachable if isinstance(error, MasterNotFoundError) else WrongUsage
        return kind(f"Redis at {address} {fault}")
    match error:
        case redis.BusyLoadingError():
            return Unreachable(f"Redis at {address} is still loading its data: try again when it has started")
        case redis.ConnectionError() | redis.TimeoutError():
            tls = ", see that it speaks TLS at this port" if address.startswith("rediss") else ""
            return Unreachable(
                f"Redis at {address} cannot be reached ({_cause(error)}): start it{tls}, or name another with --redis-url or --config"
            )
        case _:
            said = str(error).partition(" ")[0] or type(error).__name__
            return NotRight(f"Redis at {address} refused a command ({said}): {UNKNOWN_HINT}")


@contextmanager
def redis_failures(address: str) -> Iterator[None]:
    """Translate what redis-py raises within, for people who know the server by this address."""
    import redis

    try:
        yield
    except redis.RedisError as error:
        raise redis_failure(error, address) from error


def _cause(error: Exception) -> str:
    cause = error.__cause__ or error.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return "no answer in time" if "imeout" in type(error).__name__ else "no connection"
