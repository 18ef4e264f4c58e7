"""What an address in the settings may look like, and how it is shown without what is secret in it."""

import ipaddress
import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pydantic import SecretStr
from pydantic_core import PydanticCustomError

_DEFAULT_PORTS = {"http": 80, "https": 443, "redis": 6379, "rediss": 6379}


def http_endpoint(text: str) -> str:
    """The http(s) URL without a slash at its end; refused with credentials, query or fragment."""
    url = _split(text)
    if url.scheme not in {"http", "https"} or not url.netloc:
        raise _refused("must be an http:// or https:// URL")
    if "@" in url.netloc:
        raise _refused("must hold no credentials: put them into runtime_headers")
    if "?" in text or "#" in text:
        raise _refused("must have no query and no fragment")
    if not re.fullmatch(r"[\x21-\x7e]+", text) or ".." in url.path.split("/"):
        raise _refused("must have no spaces, no characters beyond ASCII and no '..' in its path")
    _host_and_port(url)
    return text.rstrip("/")


# What may stand behind the question mark. redis-py would fail of any other when it connects.
_REDIS_OPTIONS = {
    "db",
    "username",
    "password",
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
    "ssl_keyfile_password",
}
_REDIS_SECONDS = {"socket_timeout", "socket_connect_timeout"}


def redis_url(secret: SecretStr) -> SecretStr:
    """The URL as it came; refused where redis-py could not connect by it."""
    url = _split(secret.get_secret_value())
    if url.scheme not in {"redis", "rediss", "unix"}:
        raise _refused("must begin with redis://, rediss:// or unix://")
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name not in _REDIS_OPTIONS | _REDIS_SECONDS:
            raise _refused(f"has an option that is not known: {name[:40]}")
        if name in _REDIS_SECONDS and not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,3})?", value):
            raise _refused(f"must give {name} in seconds")
    if url.fragment:
        raise _refused("must have no fragment: write a '#' in a password as %23")
    if url.scheme == "unix":
        if not url.path:
            raise _refused("must name a socket: unix:///path")
        return secret
    _host_and_port(url)
    if not re.fullmatch(r"/?[0-9]{0,4}", url.path):
        raise _refused("must have nothing but the database's number as its path")
    return secret


def redis_address(secret: SecretStr) -> str:
    """The URL without user, password and query, for people and logs."""
    url = urlsplit(secret.get_secret_value())
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


def endpoint_id_of(endpoint: str, hostname: str) -> str:
    """The endpoint's host:port, with the machine's name for a loopback host.

    Every sidecar is localhost:8000, and their circuits must not be one.
    """
    host, port = _host_and_port(_split(endpoint))
    if _is_this_machine(host):
        host = hostname.lower()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def without_secrets(text: str) -> str:
    """The text with what stands before an @, or after a ?, of a URL in it masked."""
    masked = re.sub(r"(?<=://).*@", "***@", text, flags=re.DOTALL)
    return re.sub(r"(://[^?]*\?).*", r"\1***", masked, flags=re.DOTALL)


def _split(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:
        raise _refused("is not a URL") from None


def _host_and_port(url: SplitResult) -> tuple[str, int]:
    try:
        host, port = url.hostname, url.port
    except ValueError:
        # Its own words may quote the half of a password that was taken for the port.
        raise _refused("must have a number from 1 to 65535 as its port") from None
    if not host or not re.fullmatch(r"[A-Za-z0-9._:%-]+", host):
        raise _refused("must name a host")
    if port == 0:
        raise _refused("must have a number from 1 to 65535 as its port")
    return host, port or _DEFAULT_PORTS[url.scheme]


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


def _refused(reason: str) -> PydanticCustomError:
    return PydanticCustomError("refused", "{reason}", {"reason": reason})
