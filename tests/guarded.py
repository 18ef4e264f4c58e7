"""A real Valkey with the users of ``deploy/redis/users.acl``, each with a password of the test's."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import redis

from worker.sandbox.valkey_server import ValkeyServer

USERS: Final = (Path(__file__).parents[1] / "deploy" / "redis" / "users.acl").read_text().splitlines()
ROLES: Final = tuple(match[1] for line in USERS if (match := re.match(r"user speedinfer-(\S+) ", line)))
ADMIN: Final = "an-administrator-of-the-test"
NOBODYS: Final = "#" + 64 * "0"
"""What stands in a password's place: the hash of none that anybody knows."""


def password(role: str) -> str:
    """The password of a role, with what a URL has to escape."""
    return f"{role}@/:%"


def rights(role: str) -> set[str]:
    """The commands that a role may run on some keys, such as ``hget`` or ``client|id``."""
    (line,) = (each for each in USERS if each.startswith(f"user speedinfer-{role} "))
    return set(re.findall(r"\+(\S+)", line))


@dataclass(frozen=True)
class Guarded:
    """A Valkey that asks for a user."""

    server: ValkeyServer
    admin: Any

    def url(self, role: str) -> str:
        """The address as one of the roles, without the password."""
        return self.server.url.replace("://", f"://speedinfer-{role}@")

    def secret_url(self, role: str) -> str:
        """The address with the password, for clients that know no other way."""
        return self.server.url.replace("://", f"://speedinfer-{role}:{quote(password(role), safe='')}@")

    def environment(self, role: str) -> dict[str, str]:
        """Variables by which commands connect as that role."""
        return {"SPEEDINFER_REDIS_URL": self.url(role), "SPEEDINFER_REDIS_PASSWORD": password(role)}

    def client(self, role: str) -> Any:
        """A client of that role."""
        return redis.Redis.from_url(self.server.url, username=f"speedinfer-{role}", password=password(role))

    def denied(self) -> list[str]:
        """Who was refused what since the log was last emptied."""
        entries = self.admin.acl_log()
        return [
            " ".join(_text(entry[name]) for name in ("username", "reason", "object", "context")) for entry in entries
        ]


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


@contextmanager
def guarded_valkey(
    directory: Path, server: ValkeyServer | None = None, unknown: Sequence[str] = ()
) -> Iterator[Guarded]:
    """Run one, or ``server``; of the file only the passwords differ, and the default user, which is the test's.

    ``unknown`` are rights that the server is too old to know.
    """
    server = server or ValkeyServer()
    server.settings |= guards(directory, unknown)
    with server:
        admin = redis.Redis.from_url(server.url, password=ADMIN)
        yield Guarded(server, admin)
        admin.close()


def guards(directory: Path, unknown: Sequence[str] = ()) -> dict[str, str]:
    """The server's settings by which it has the users, from a file that is written into the directory."""
    text = "".join(f"{_with_password(line)}\n" for line in USERS)
    for right in unknown:
        text = text.replace(f" {right} ", " ")
    file = directory / "users.acl"
    file.write_text(text)
    return {"aclfile": str(file), "requirepass": ADMIN}


def _with_password(line: str) -> str:
    user = line.split()[1]
    if user == "default":
        return f"user default on >{ADMIN} ~* &* +@all"
    role = user.removeprefix("speedinfer-")
    return line.replace(NOBODYS, "#" + hashlib.sha256(password(role).encode()).hexdigest())
