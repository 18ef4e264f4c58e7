"""One worker's copy of a circuit: acted on at once, and brought together with what other workers write. No I/O.

What went well with a healthy model is only counted: it is told together with the next failure, or when somebody else's
failures make it matter. So a healthy model costs no round trip.
"""

from collections.abc import Callable

from worker.circuit import Circuit, CircuitTerms, Look, State, after_calls, after_look
from worker.circuit_calls import Call
from worker.circuit_store import Stored, Write, WriteReply


class CircuitCopy:
    """The copy; ``circuit`` is what this worker acts on. Times are Redis' unix milliseconds."""

    def __init__(self, terms: CircuitTerms, draw: Callable[[], float]) -> None:
        """Begin with a closed circuit."""
        self.circuit = Circuit()
        self._terms = terms
        self._draw = draw
        self._stored = Stored()
        self._news: list[Call | Look] = []
        self._unsaid = 0  # Successes; the latest began and ended at these times.
        self._unsaid_started_ms = 0
        self._unsaid_ended_ms = 0
        self._sent: Write | None = None
        self._sent_news = 0

    @property
    def has_news(self) -> bool:
        """Whether there is something that Redis was not told, or may not have been."""
        return bool(self._news) or self._sent is not None

    def observe(self, call: Call, now_ms: int) -> None:
        """Learn how a call ended."""
        if call.is_plain_success:
            self.succeed(call.started_ms, call.ended_ms, now_ms)
        elif not call.is_neutral:
            self._say(now_ms)
            self._take(call, now_ms)

    def succeed(self, started_ms: int, ended_ms: int, now_ms: int) -> None:
        """Learn of a success that was not slow: what nearly all calls are, and what is only counted of a healthy model."""
        circuit = self.circuit
        if circuit.state is not State.CLOSED or circuit.forced:
            self._take(Call(started_ms, ended_ms), now_ms)
            return
        self._unsaid += 1
        self._unsaid_started_ms = max(self._unsaid_started_ms, started_ms)
        self._unsaid_ended_ms = max(self._unsaid_ended_ms, ended_ms)
        if circuit.row.total:
            self._say_what_matters(now_ms)

    def looked(self, look: Look, now_ms: int) -> None:
        """Learn what a look at the model gave."""
        self._take(look, now_ms)

    def heard(self, stored: Stored, now_ms: int) -> None:
        """Take what stands in Redis."""
        if self._sent is not None and stored.version == self._sent.version:
            self._stands(self._sent)
        elif stored.version != self._stored.version:
            self._begin_again(stored, now_ms)

    def write(self, version: str) -> Write | None:
        """Return what is to be stored, under this version or that of an earlier try; None where there is no news."""
        if self._sent is None and self._news:
            self._sent = Write(self.circuit, self._stored.version, version)
            self._sent_news = len(self._news)
        return self._sent

    def replied(self, reply: WriteReply) -> None:
        """Learn what became of the write."""
        if reply.instead is not None:
            self._begin_again(reply.instead, reply.now_ms)
        elif self._sent is not None:
            self._stands(self._sent)

    def _stands(self, write: Write) -> None:
        self._stored = Stored(write.circuit, write.version)
        del self._news[: self._sent_news]
        self._sent = None

    def _begin_again(self, stored: Stored, now_ms: int) -> None:
        # A look is judged by what the model was before it, which may be another opening now; the next one is soon.
        calls = [event for event in self._news if isinstance(event, Call)]
        self._stored, self.circuit = stored, stored.circuit
        self._sent, self._news = None, []
        for call in calls:
            self._take(call, now_ms)
        if self.circuit.state is State.CLOSED and not self.circuit.forced:
            self._say_what_matters(now_ms)
        else:
            self._unsaid = 0

    def _say_what_matters(self, now_ms: int) -> None:
        """Tell of successes where there are failures before them that they end the row of."""
        circuit = self.circuit
        if self._unsaid and circuit.row.total and self._unsaid_ended_ms >= circuit.failed_ms:
            self._say(now_ms)

    def _say(self, now_ms: int) -> None:
        if self._unsaid:
            times, self._unsaid = min(self._unsaid, self._terms.window), 0
            self._take(Call(self._unsaid_started_ms, self._unsaid_ended_ms, times=times), now_ms)

    def _take(self, event: Call | Look, now_ms: int) -> None:
        """Act on something new; what changes nothing is no news."""
        if isinstance(event, Call):
            circuit = after_calls(self.circuit, [event], self._terms, now_ms, self._draw)
        else:
            circuit = after_look(self.circuit, event, self._terms, now_ms)
        if circuit != self.circuit:
            self.circuit = circuit
            self._news.append(event)
