"""What an address in the settings may look like, and how it is shown without what is secret in it."""

import ipaddress
import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pydantic import SecretStr
from pydantic_core import PydanticCustomError

_DEFAULT_PORTS = {
    "http": 80,
    "https": 443,
    "redis": 6379,
    "rediss": 6379,
    "redis+sentinel": 26379,
    "rediss+sentinel": 26379,
}


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
_SENTINEL_OPTIONS = {"sentinel_username", "sentinel_password"}


def redis_url(secret: SecretStr) -> SecretStr:
    """The URL as it came; refused where redis-py could not connect by it."""
    url = _split(secret.get_secret_value())
    if url.scheme not in {"redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"}:
        raise _refused("must begin with redis://, rediss://, unix://, redis+sentinel:// or rediss+sentinel://")
    known = _REDIS_OPTIONS | _REDIS_SECONDS | (_SENTINEL_OPTIONS if url.scheme.endswith("+sentinel") else set())
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name not in known:
            raise _refused(f"has an option that is not known: {name[:40]}")
        if name in _REDIS_SECONDS and not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,3})?", value):
            raise _refused(f"must give {name} in seconds")
    if url.fragment:
        raise _refused("must have no fragment: write a '#' in a password as %23")
    if url.scheme == "unix":
        if not url.path:
            raise _refused("must name a socket: unix:///path")
        return secret
    if url.scheme.endswith("+sentinel"):
        sentinels_of(secret.get_secret_value())
        return secret
    _host_and_port(url)
    if not re.fullmatch(r"/?[0-9]{0,4}", url.path):
        raise _refused("must have nothing but the database's number as its path")
    return secret


def sentinels_of(text: str) -> tuple[list[tuple[str, int]], str, int]:
    """The Sentinels' hosts and ports, the service they watch and the database, of `redis+sentinel://A,B/SERVICE/DB`."""
    url = _split(text)
    hosts = url.netloc.rpartition("@")[2].split(",")
    sentinels = [_host_and_port(_split(f"{url.scheme}://{host}")) for host in hosts]
    path = re.fullmatch(r"/([A-Za-z0-9._-]{1,100})(?:/([0-9]{0,4}))?", url.path)
    if not path:
        raise _refused("must name the service that the Sentinels watch: redis+sentinel://host:26379/SERVICE/0")
    return sentinels, path[1], int(path[2] or 0)


def holds_password(secret: SecretStr) -> bool:
    """Whether the URL says a password, as its user's or as an option."""
    url = urlsplit(secret.get_secret_value())
    userinfo = url.netloc.rpartition("@")[0]
    return bool(userinfo.partition(":")[2]) or "password" in dict(parse_qsl(url.query, keep_blank_values=True))


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
