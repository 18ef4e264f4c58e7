"""What ``check`` asks Redis: whether it is there, and whether it keeps what is entrusted to it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from worker.cli.failures import Failure
from worker.cli.targets import RedisTarget


@dataclass(frozen=True, slots=True)
class RedisFindings:
    """What Redis is; ``warnings`` put jobs at risk, ``errors`` keep workers from working."""

    address: str
    reachable: bool
    server: str | None = None
    version: str | None = None
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def about_redis(target: RedisTarget) -> tuple[RedisFindings, Failure | None]:
    """Return what Redis says of itself, with the failure where it does not."""
    try:
        with target.connected() as client:
            info = client.info()
    except Failure as failure:
        return RedisFindings(target.address, reachable=False, errors=(str(failure),)), failure
    server = str(info.get("server_name", "redis"))
    version = str(info.get("valkey_version") or info.get("redis_version"))
    return RedisFindings(
        target.address, True, server, version, tuple(warnings(info)), tuple(errors(info, target.namespace))
    ), None


def warnings(info: Mapping[str, Any]) -> Iterator[str]:
    """Yield what puts jobs or results at risk in this server, by its INFO."""
    if not info.get("aof_enabled"):
        yield "appendonly is off: a restart loses jobs and settlements; set appendonly yes"
    if info.get("aof_last_write_status", "ok") != "ok":
        yield "the append-only file cannot be written: look at the server's disk"
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield f"maxmemory-policy is {policy}: when memory is full, jobs and results are thrown away; set noeviction"


def errors(info: Mapping[str, Any], namespace: str) -> Iterator[str]:
    """Yield what keeps workers from working with this server, by its INFO."""
    if info.get("role") == "slave":
        yield "it is a replica, which takes no writes: name the primary in redis_url"
    if info.get("cluster_enabled") and not namespace.startswith("{"):
        yield f"it is a cluster, whose keys must live on one primary: set namespace to {{{namespace}}}"
