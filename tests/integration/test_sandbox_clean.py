"""The check that runs after each test: it finds what nothing would ever remove."""

import pytest
import redis

from tests.clean import leftovers


@pytest.mark.parametrize(
    ("key", "ttl", "is_left"),
    [
        ("speedinfer:jobs:acme/model-1", None, False),
        ("speedinfer:jobs:acme/model-1\x06\x163", None, False),
        ("{speedinfer}:settlements", None, False),
        ("speedinfer:dead-letters", None, False),
        ("speedinfer:workers", None, False),
        ("speedinfer:models", None, False),
        ("speedinfer:model:acme/model-1:workers", None, False),
        ("speedinfer:paused", None, False),
        ("speedinfer:result:j-1", 60, False),
        ("speedinfer:result:j-1", None, True),
        ("speedinfer:settled:j-1", None, True),
        ("speedinfer:worker:w-1", None, True),
        ("speedinfer:waiting", None, True),
        ("speedinfer:claims:incarnation", None, True),
        ("speedinfer:claims:incarnation", 60, True),
        ("_kombu.binding.celery", None, True),
    ],
)
def test_only_what_the_contract_lets_live_may_be_left(
    valkey: redis.Redis, key: str, ttl: int | None, *, is_left: bool
) -> None:
    """Queues, streams and registries may stay; claims never; everything else needs an end."""
    valkey.set(key, "x", ex=ttl)

    found = leftovers(valkey)

    valkey.delete(key)
    assert found == ([key] if is_left else [])


@pytest.mark.leaves("claims:*", "/_kombu.binding.*")
def test_a_test_may_say_what_it_leaves(valkey: redis.Redis) -> None:
    """The marker names keys by what follows the namespace, or whole when the pattern starts with a slash."""
    valkey.set("speedinfer:claims:incarnation", "x")
    valkey.set("_kombu.binding.celery", "x")
    valkey.set("speedinfer:waiting", "x")

    assert leftovers(valkey, ["claims:*", "/_kombu.binding.*"]) == ["speedinfer:waiting"]

    valkey.delete("speedinfer:waiting")


def test_nothing_of_the_test_before_is_there(valkey: redis.Redis) -> None:
    """Each test starts with an empty Valkey."""
    assert valkey.dbsize() == 0
