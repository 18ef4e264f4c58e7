"""How Redis is reached: its address, and what belongs to it but should not stand in a URL."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import parse_qsl, quote, urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from settings import addresses
from settings.fields import MISSING, Refusal, Section, Shown, refuse


def _password(secret: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[^\x00-\x1f\x7f]{1,1024}", secret.get_secret_value()):
        raise PydanticCustomError("refused", "must be 1 to 1024 printable characters on one line")
    return secret


RedisUrl = Annotated[SecretStr, AfterValidator(addresses.redis_url), Shown(kind="redis URL")]
RedisPassword = Annotated[SecretStr, AfterValidator(_password)]
_PemFile = Annotated[Path | None, Field(strict=False), Shown(kind="path")]


class RedisTls(Section):
    """Certificates for a `rediss://` or `rediss+sentinel://` address; the Sentinels are spoken to in the same way."""

    ca_file: _PemFile = None
    """PEM file of the authorities that the server's certificate is checked by. Without it, those of the system."""
    cert_file: _PemFile = None
    """PEM file of the client certificate."""
    key_file: _PemFile = None
    """PEM file of the client certificate's key. Without it, the key is read from `cert_file`."""
    check_hostname: bool = True
    """Whether the certificate must be for the name or address that is connected to."""
    verify: bool = True
    """Whether the server's certificate is checked at all."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.key_file and not self.cert_file:
            refuse([Refusal(("key_file",), str(self.key_file), "has no use without cert_file")])
        if self.ca_file and not self.verify:
            refuse([Refusal(("verify",), False, "must be true where ca_file is set")])
        return self

    @property
    def options(self) -> dict[str, str]:
        """What it says as options of a Redis URL."""
        files = {"ssl_ca_certs": self.ca_file, "ssl_certfile": self.cert_file, "ssl_keyfile": self.key_file}
        said = {name: str(path) for name, path in files.items() if path}
        if not self.verify:
            said["ssl_cert_reqs"] = "none"
        if not (self.verify and self.check_hostname):
            said["ssl_check_hostname"] = "false"
        return said


class RedisSentinel(Section):
    """Who one is to the Sentinels of a `redis+sentinel://` address, where they ask."""

    username: Annotated[str | None, Shown(kind="text")] = None
    """User of the Sentinels; without it, their default user."""
    password: RedisPassword | None = None
    """Its password; takes `env:NAME` and `file:PATH`."""

    @property
    def options(self) -> dict[str, str]:
        """What it says as options of a Redis URL."""
        said = {"sentinel_username": self.username} if self.username else {}
        if self.password:
            said["sentinel_password"] = self.password.get_secret_value()
        return said


class RedisAccess(Section):
    """The four fields alone, for commands that need no worker's configuration."""

    redis_url: RedisUrl = SecretStr("redis://127.0.0.1:6379/0")
    redis_password: RedisPassword | None = None
    redis_tls: RedisTls = RedisTls()
    redis_sentinel: RedisSentinel = RedisSentinel()


def whole_url(url: SecretStr, password: SecretStr | None, tls: RedisTls, sentinel: RedisSentinel) -> SecretStr:
    """The URL with all of it: what connects by it needs nothing else.

    Raises the refusals of what has no use, or is said twice.
    """
    refuse(_refusals(url, password, tls, sentinel))
    text = url.get_secret_value()
    if password:
        scheme, _, rest = text.partition("://")
        authority, slash, path = rest.partition("/")
        user, at, hosts = authority.rpartition("@")
        user, hosts = (user.rstrip(":"), hosts) if at else ("", authority)
        text = f"{scheme}://{user}:{quote(password.get_secret_value(), safe='')}@{hosts}{slash}{path}"
    added = "&".join(f"{name}={quote(value, safe='/')}" for name, value in {**tls.options, **sentinel.options}.items())
    return SecretStr(f"{text}{'&' if '?' in text else '?'}{added}" if added else text)


def _refusals(url: SecretStr, password: SecretStr | None, tls: RedisTls, sentinel: RedisSentinel) -> Iterator[Refusal]:
    text = url.get_secret_value()
    parts = urlsplit(text)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if password and addresses.holds_password(url):
        yield Refusal(("redis_password",), MISSING, "has no use: redis_url holds a password too; leave one of the two")
    if tls != RedisTls() and not parts.scheme.startswith("rediss"):
        yield Refusal(
            ("redis_tls",), MISSING, "has no use: redis_url does not begin with rediss:// or rediss+sentinel://"
        )
    if tls != RedisTls() and any(name.startswith("ssl_") for name in options):
        yield Refusal(
            ("redis_tls",), MISSING, "has no use: redis_url has options that begin with ssl_; leave one of the two"
        )
    if sentinel != RedisSentinel() and not parts.scheme.endswith("+sentinel"):
        yield Refusal(("redis_sentinel",), MISSING, "has no use: redis_url names no Sentinels (redis+sentinel://…)")
    if sentinel != RedisSentinel() and any(name.startswith("sentinel_") for name in options):
        yield Refusal(
            ("redis_sentinel",),
            None,
            "has no use: redis_url has options that begin with sentinel_; leave one of the two",
        )
