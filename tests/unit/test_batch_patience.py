"""An outage of Redis is borne for a while, and what is no outage is not."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import redis
from redis.exceptions import BusyLoadingError, NoPermissionError, OutOfMemoryError, ReadOnlyError

from worker.batch.patience import Patience


@dataclass
class World:
    """A time that only naps pass, and what was told."""

    passed: float = 0.0
    naps: list[float] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        """Pass the time."""
        self.naps.append(seconds)
        self.passed += seconds

    def patience(self, seconds: float) -> Patience:
        """So much of it."""
        return Patience(seconds, lambda: self.passed, self.sleep, self.told.append)


def failing(times: int, error: Exception) -> Callable[[], str]:
    """A call that fails so often and then answers."""
    left = [times]

    def call() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return "answer"

    return call


@pytest.mark.parametrize(
    "error",
    [
        *(redis.ConnectionError(), redis.TimeoutError(), BusyLoadingError(), OutOfMemoryError(), ReadOnlyError()),
        redis.ResponseError("MISCONF Errors writing to the AOF file"),
    ],
)
def test_a_call_is_repeated_until_redis_is_back(error: Exception) -> None:
    """More and more rarely; a person is told once."""
    world = World()
    assert world.patience(60).bear(failing(9, error)) == "answer"
    assert world.told == [type(error).__name__]
    assert world.naps == sorted(world.naps)
    assert max(world.naps) <= 2


def test_patience_ends() -> None:
    """Then the error is the caller's."""
    world = World()
    with pytest.raises(redis.ConnectionError):
        world.patience(60).bear(failing(10**6, redis.ConnectionError()))
    assert 60 <= world.passed < 63


def test_another_outage_has_its_own_patience() -> None:
    """What was borne before does not count."""
    world = World()
    patience = world.patience(1.0)
    for _ in range(5):
        assert patience.bear(failing(4, redis.ConnectionError())) == "answer"
    assert world.passed > 1.0


@pytest.mark.parametrize(
    "error", [redis.AuthenticationError(), NoPermissionError(), redis.ResponseError(), ValueError()]
)
def test_what_will_not_pass_is_not_waited_for(error: Exception) -> None:
    """A wrong password is wrong the second time too."""
    world = World()
    with pytest.raises(type(error)):
        world.patience(60).bear(failing(1, error))
    assert (world.naps, world.told) == ([], [])
