"""Where everything of a namespace is in Redis."""

import pytest
from kombu.transport import redis as kombu_redis

from worker.keys import PRIORITIES, Keys

KEYS = Keys("speedinfer")


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (KEYS.jobs("acme/model-1"), "speedinfer:jobs:acme/model-1"),
        (KEYS.claims("triton-01:a"), "speedinfer:claims:triton-01:a"),
        (KEYS.calls("triton-01:a"), "speedinfer:calls:triton-01:a"),
        (KEYS.claimants, "speedinfer:claims"),
        (KEYS.running, "speedinfer:running"),
        (KEYS.leases, "speedinfer:leases"),
        (KEYS.cancel("j-1"), "speedinfer:cancel:j-1"),
        (KEYS.waiting, "speedinfer:waiting"),
        (KEYS.attempts("j-1"), "speedinfer:attempts:j-1"),
        (KEYS.retried("j-1"), "speedinfer:retried:j-1"),
        (KEYS.settlements, "speedinfer:settlements"),
        (KEYS.result("j-1"), "speedinfer:result:j-1"),
        (KEYS.settled("j-1"), "speedinfer:settled:j-1"),
        (KEYS.enqueued("j-1"), "speedinfer:enqueued:j-1"),
        (KEYS.dead_letters, "speedinfer:dead-letters"),
        (KEYS.worker("triton-01"), "speedinfer:worker:triton-01"),
        (KEYS.workers, "speedinfer:workers"),
        (KEYS.model_workers("acme/model-1"), "speedinfer:model:acme/model-1:workers"),
        (KEYS.models, "speedinfer:models"),
        (KEYS.declared, "speedinfer:declared"),
        (KEYS.paused, "speedinfer:paused"),
        (KEYS.pauses, "speedinfer:pauses"),
        (KEYS.explained, "speedinfer:explained"),
        (KEYS.circuit("triton:8000", "text_generation"), "speedinfer:circuit:triton:8000:text_generation"),
        (KEYS.pool("gpu-a"), "speedinfer:pool:gpu-a"),
        (KEYS.pool_slots("gpu-a"), "speedinfer:pool:gpu-a:slots"),
        (KEYS.pool_grants("gpu-a"), "speedinfer:pool:gpu-a:grants"),
        (KEYS.pool_paces("gpu-a"), "speedinfer:pool:gpu-a:paces"),
        (KEYS.prefix, "speedinfer:"),
        (Keys("{speedinfer}").jobs("m"), "{speedinfer}:jobs:m"),
    ],
)
def test_keys_are_where_the_contract_says(key: str, name: str) -> None:
    """The public ones are relied on by gateways and consumers, the others by workers of other versions."""
    assert key == name


@pytest.mark.parametrize("model", ["acme/model-1", "a", "A.b_c-d/e/f", "jobs", "speedinfer"])
@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_list_of_a_queue_says_whose_it_is(model: str, priority: str) -> None:
    """Whichever of its priority lists."""
    name = KEYS.jobs(model) + priority
    assert KEYS.is_jobs(name)
    assert KEYS.model_of(name) == model


@pytest.mark.parametrize(
    "name", ["speedinfer:claims:x", "speedinfer:jobs", "other:jobs:m", "speedinfer:settlements", ""]
)
def test_other_keys_are_no_queues(name: str) -> None:
    """Nor are queues of another namespace."""
    assert not KEYS.is_jobs(name)


def test_priority_lists_are_kombus() -> None:
    """A Celery producer's priority puts its message in the list that kombu's own consumer would read."""
    steps, separator = kombu_redis.PRIORITY_STEPS, kombu_redis.Channel.sep
    names = [f"q{separator}{step}" if step else "q" for step in sorted(steps)]
    assert [f"q{priority}" for priority in PRIORITIES] == names
