"""How Redis is reached: one whole URL of what stands in several fields, and what is refused of them."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from settings.addresses import sentinels_of
from settings.load import ConfigurationError, redis_url_from, settings_from
from settings.redis import RedisSentinel, RedisTls, whole_url
from worker.connections import connection_pool

WORKER: dict[str, Any] = {
    "worker_id": "w",
    "runtime_endpoint": "http://triton:8000",
    "supported_models": ["m"],
    "runtime_config": {"model_name": "m"},
}


def url_of(environ: dict[str, str] | None = None, **fields: Any) -> str:
    """The whole URL of a worker's settings with these fields."""
    return settings_from({**WORKER, **fields}, environ=environ or {}).redis_url.get_secret_value()


@pytest.mark.parametrize(
    ("fields", "whole"),
    [
        ({"redis_url": "redis://redis:1/2"}, "redis://redis:1/2"),
        ({"redis_url": "redis://user@redis", "redis_password": "p"}, "redis://user:p@redis"),
        ({"redis_url": "redis://redis/3", "redis_password": "a@b/c:d%"}, "redis://:a%40b%2Fc%3Ad%25@redis/3"),
        ({"redis_url": "unix://user@/run/r.sock?db=1", "redis_password": "p"}, "unix://user:p@/run/r.sock?db=1"),
        (
            {"redis_url": "rediss://redis", "redis_tls": {"verify": False}},
            "rediss://redis?ssl_cert_reqs=none&ssl_check_hostname=false",
        ),
        (
            {"redis_url": "rediss://redis/0", "redis_tls": {"check_hostname": False}},
            "rediss://redis/0?ssl_check_hostname=false",
        ),
        (
            {
                "redis_url": "redis+sentinel://user@a,b:1/s/2",
                "redis_password": "p",
                "redis_sentinel": {"password": "q"},
            },
            "redis+sentinel://user:p@a,b:1/s/2?sentinel_password=q",
        ),
    ],
)
def test_what_is_said_apart_becomes_one_url(fields: dict[str, Any], whole: str) -> None:
    """By which everything connects; the address for people stays without it."""
    assert url_of(**fields) == whole
    assert "p@" not in settings_from({**WORKER, **fields}).redis_address


def test_a_password_may_come_from_a_variable_or_a_file(tmp_path: Path) -> None:
    """With the line's end that files have, and that passwords have not."""
    (tmp_path / "password").write_text("from a file\n")
    assert unquote(url_of(redis_password=f"file:{tmp_path}/password")).startswith("redis://:from a file@")
    assert url_of({"PASSWORD": "p"}, redis_password="env:PASSWORD").startswith("redis://:p@")
    sentinel = {"redis_url": "redis+sentinel://a/s", "redis_sentinel": {"username": "u", "password": "env:PASSWORD"}}
    assert url_of({"PASSWORD": "q"}, **sentinel).endswith("?sentinel_username=u&sentinel_password=q")


@given(
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x2FFF, exclude_characters="\x7f"), min_size=1, max_size=30)
)
def test_any_password_is_what_the_client_sends(password: str) -> None:
    """Whatever it contains."""
    for url in ("redis://user@redis/1", "unix://user@/run/r.sock", "redis+sentinel://user@a,b/s/1"):
        whole = whole_url(SecretStr(url), SecretStr(password), RedisTls(), RedisSentinel()).get_secret_value()
        options = connection_pool(whole).connection_kwargs
        assert (options["username"], options["password"]) == ("user", password)


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"redis_url": "redis://u:p@redis", "redis_password": "q"},
        "redis_password: has no use: redis_url holds a password too",
    ),
    ({"redis_url": "redis://redis?password=p", "redis_password": "q"}, "redis_password: has no use"),
    ({"redis_tls": {"verify": False}}, "redis_tls: has no use: redis_url does not begin with rediss://"),
    ({"redis_url": "rediss://r?ssl_cert_reqs=none", "redis_tls": {"verify": False}}, "redis_tls: has no use"),
    ({"redis_sentinel": {"username": "u"}}, "redis_sentinel: has no use: redis_url names no Sentinels"),
    ({"redis_password": "a\nb"}, "redis_password = (hidden): must be 1 to 1024 printable characters on one line"),
    ({"redis_password": "env:NOT_SET"}, "redis_password = (hidden): the environment variable NOT_SET is not set"),
    ({"redis_tls": {"ca_file": "/not/there"}}, 'redis_tls.ca_file = "/not/there": is not a file that can be read'),
    ({"redis_tls": {"key_file": "/k"}}, 'redis_tls.key_file = "/k": has no use without cert_file'),
    ({"redis_url": "redis+sentinel://a:1"}, "must name the service that the Sentinels watch"),
    ({"redis_url": "redis+sentinel://a:1,b:0/s"}, "must have a number from 1 to 65535 as its port"),
    ({"redis_url": "redis+sentinel://a,,b/s"}, "must name a host"),
    ({"redis_url": "redis://a?sentinel_password=p"}, "has an option that is not known: sentinel_password"),
]


@pytest.mark.parametrize(("fields", "complaint"), REFUSED)
def test_what_cannot_be_or_is_said_twice_is_refused(fields: dict[str, Any], complaint: str) -> None:
    """With the field, and without what is secret."""
    with pytest.raises(ConfigurationError) as caught:
        settings_from({**WORKER, **fields})
    assert complaint in str(caught.value)


def test_sentinels_are_read_with_their_default_port() -> None:
    """Each may have one of its own; the database is 0 unless it is said."""
    assert sentinels_of("rediss+sentinel://u:p@a,[::1]:2,c:3/svc/4") == ([("a", 26379), ("::1", 2), ("c", 3)], "svc", 4)
    assert sentinels_of("redis+sentinel://a/svc") == ([("a", 26379)], "svc", 0)


def test_variables_alone_make_the_url() -> None:
    """Of commands that need no worker's configuration; what they say beside another URL counts where it fits."""
    environ = {
        "SPEEDINFER_REDIS_URL": "rediss://operator@redis/0",
        "SPEEDINFER_REDIS_PASSWORD": "env:SECRET",
        "SPEEDINFER_REDIS_TLS__CHECK_HOSTNAME": "false",
        "SECRET": "s",
    }
    assert redis_url_from(environ).get_secret_value() == "rediss://operator:s@redis/0?ssl_check_hostname=false"
    for url, whole in (
        ("redis://other", "redis://:s@other"),
        ("redis://:own@other", "redis://:own@other"),
        ("rediss://:own@other", "rediss://:own@other?ssl_check_hostname=false"),
    ):
        assert redis_url_from(environ, SecretStr(url)).get_secret_value() == whole
    with pytest.raises(
        ConfigurationError, match="SPEEDINFER_REDIS_PASSWORD: redis_password = \\(hidden\\): the environment"
    ):
        redis_url_from({**environ, "SECRET": ""})
