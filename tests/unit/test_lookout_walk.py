"""The lookout against queues whose server tells of pushes once, to those that found them empty: no wake-up is lost."""

from collections import Counter

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.jobs import CLAIMED_AT_MS
from worker.exchange import Claimed, ClaimRequest
from worker.lookout import SWEEP_MS, UNTRACKED_SWEEP_MS, Lookout

MODELS = ("acme/a", "acme/b", "acme/c")
Models = st.sampled_from(MODELS)


class Walk(RuleBasedStateMachine):
    """Pushes, bells, outages and claims in any order; a claim's script runs anywhere between request and reply."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0.0
        self.queued = Counter[str]()
        self.listened_to: set[str] = set()
        self.bells: list[str] = []
        self.told = False
        self.shut: set[str] = set()
        self.subscribed: set[str] = set()
        self.request: ClaimRequest | None = None
        self.reply: Claimed | None = None
        self.lookout = Lookout(lambda model: model not in self.shut, lambda: self.told)

    @initialize(models=st.sets(Models, min_size=1))
    def begin(self, models: set[str]) -> None:
        """Consume from some queues."""
        for model in sorted(models):
            self.consume(model)

    @rule(model=Models)
    def consume(self, model: str) -> None:
        """Consume from a queue."""
        self.subscribed.add(model)
        self.lookout.open(model)

    @rule(model=Models)
    def cancel(self, model: str) -> None:
        """Consume from a queue no more."""
        self.subscribed.discard(model)
        self.lookout.close(model)

    @rule(model=Models)
    def push(self, model: str) -> None:
        """Let a gateway push; the server tells whoever listens, once."""
        self.queued[model] += 1
        if model in self.listened_to:
            self.listened_to.discard(model)
            self.bells.append(model)

    @rule(model=Models)
    def take_by_another(self, model: str) -> None:
        """Let another worker take a job; the server tells of that too."""
        if self.queued[model]:
            self.queued[model] -= 1

    @rule(model=Models)
    def give_back(self, model: str) -> None:
        """Put a job back ourselves, of which the server tells us nothing."""
        self.queued[model] += 1
        self.lookout.ring(frozenset({model}))

    @precondition(lambda self: self.bells)
    @rule()
    def ring(self) -> None:
        """Let a bell arrive."""
        self.lookout.ring(frozenset({self.bells.pop(0)}))

    @rule(model=Models)
    def shut_or_open(self, model: str) -> None:
        """Pause a model, or end its pause: nothing rings for that."""
        self.shut ^= {model}

    @precondition(lambda self: self.request is None)
    @rule(told=st.booleans())
    def lose_the_connection(self, told: bool) -> None:
        """Lose what the server knew of us, and the bells under way."""
        self.listened_to.clear()
        self.bells.clear()
        self.told = told
        self.lookout.ring(None)

    @rule(passed=st.sampled_from([1.0, 50.0, UNTRACKED_SWEEP_MS, SWEEP_MS]))
    def pass_time(self, passed: float) -> None:
        """Let time pass."""
        self.now_ms += passed

    @precondition(lambda self: self.request is None)
    @rule(wanted=st.integers(0, 3))
    def ask(self, wanted: int) -> None:
        """Ask; whatever can be claimed is asked for, but for what a bell that is under way will tell of."""
        sweep = self.now_ms >= self.lookout.next_look_ms()
        self.request = self.lookout.request(self.now_ms, wanted)
        asked = self.request.open if self.request else ()
        open_now = self.subscribed - self.shut
        assert set(asked) <= open_now
        if wanted and self.told:
            there = {model for model in open_now if self.queued[model]}
            assert there <= {*asked, *self.bells}, "a job is there, and neither asked for nor rung for"
        if sweep:
            assert self.request is not None
            assert set(asked) == open_now
            assert set(self.request.closed) == self.subscribed & self.shut
            longest = SWEEP_MS if self.told else UNTRACKED_SWEEP_MS
            assert self.lookout.next_look_ms() <= self.now_ms + longest

    @precondition(lambda self: self.request is not None and self.reply is None)
    @rule()
    def run_the_script(self) -> None:
        """Let the server do what was asked: take in turn, listen where nothing is left."""
        assert self.request is not None
        left = self.request.wanted
        while left and any(self.queued[model] for model in self.request.open):
            for model in self.request.open:
                if left and self.queued[model]:
                    self.queued[model] -= 1
                    left -= 1
        empty = {model for model in (*self.request.open, *self.request.closed) if not self.queued[model]}
        if self.told:
            self.listened_to |= empty
        self.reply = Claimed(CLAIMED_AT_MS, None, frozenset(empty), frozenset(), ())

    @precondition(lambda self: self.reply is not None)
    @rule()
    def hear_the_reply(self) -> None:
        """Let the reply arrive."""
        assert self.reply is not None
        self.lookout.learn(self.reply, self.now_ms)
        self.request = self.reply = None

    @precondition(lambda self: self.request is None)
    @rule()
    def nothing_spins(self) -> None:
        """When nothing comes in, each queue is asked for once more at the most, and then there is silence."""
        asks, most = 0, 2 + self.queued.total()
        while (request := self.lookout.request(self.now_ms, 1)) is not None:
            self.request = request
            self.run_the_script()
            self.hear_the_reply()
            asks += 1
            assert asks <= most, "it asks for what cannot be there"
        assert self.now_ms < self.lookout.next_look_ms()


TestWalk = Walk.TestCase
TestWalk.settings = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],  # to explain a failure, hypothesis traces every line, which is slow
)
