"""Stand-ins for what the task needs of the process that runs it: the ports of tasks/generate.py, and nothing else."""

from dataclasses import dataclass, field

from tasks.generate import Generation
from tasks.job import GenerateJob
from tasks.tensor_result import TensorGeneration
from tasks.tensors import TensorJob
from tests.jobs import usage

GENERATION = Generation(text="Hello to you too", usage=usage(), finish_reason=None, model_version="1")


@dataclass
class FakeClock:
    """A clock that stands still until it is told to pass."""

    now_ms: float = 0.0

    def monotonic_ms(self) -> float:
        """Return where it stands."""
        return self.now_ms

    def pass_ms(self, passed: float) -> None:
        """Let this much time pass."""
        self.now_ms += passed


@dataclass
class FakeInference:
    """Ends each inference as told: returns a Generation or raises an error, after ``takes_ms`` of its clock."""

    ends_with: Generation | BaseException = GENERATION
    clock: FakeClock = field(default_factory=FakeClock)
    takes_ms: float = 0.0
    asked: list[tuple[GenerateJob, str]] = field(default_factory=list)

    def infer(self, job: GenerateJob, request_id: str) -> Generation:
        """End as told; ``asked`` remembers what it was asked."""
        self.asked.append((job, request_id))
        self.clock.pass_ms(self.takes_ms)
        if isinstance(self.ends_with, BaseException):
            raise self.ends_with
        return self.ends_with

    def infer_tensors(self, job: TensorJob, request_id: str) -> TensorGeneration:
        """Refuse: this one is of texts."""
        raise AssertionError(job, request_id)
