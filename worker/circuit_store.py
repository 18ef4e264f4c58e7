"""Circuits in Redis: read many in one round trip, written where nobody else was quicker; for workers and for operators' commands."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import redis

from worker import lua
from worker.circuit import Circuit, State, forced
from worker.circuit_record import from_fields, to_fields
from worker.keys import Keys
from worker.scripts import Argument, Link, Scripts

_SCRIPT: Final = "store_if_unchanged"
_KEPT_MS: Final = 86_400_000
_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class Stored:
    """A circuit as Redis has it; ``version`` is '' where it has none."""

    circuit: Circuit = field(default_factory=Circuit)
    version: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """A circuit to be stored where ``expected`` is still the version there; ``version`` is the new one, which no other write has."""

    circuit: Circuit
    expected: str
    version: str


@dataclass(frozen=True, slots=True)
class WriteReply:
    """What became of a write: ``instead`` is what stands there, None where the write does."""

    now_ms: int
    instead: Stored | None


class CircuitStore:
    """The circuits of one endpoint, by Triton's model names, over one connection.

    Every method raises RedisUnavailable where nothing is known of what was done; the same may be asked again.
    """

    def __init__(self, link: Link, keys: Keys, endpoint_id: str) -> None:
        """Keep the parts; nothing is asked yet."""
        self._link = link
        self._scripts = Scripts(link, [_SCRIPT])
        self._keys = keys
        self._endpoint_id = endpoint_id

    def key(self, model_name: str) -> str:
        """Return where a model's circuit stands."""
        return self._keys.circuit(self._endpoint_id, model_name)

    def read(self, model_names: Sequence[str]) -> tuple[int, list[Stored]]:
        """Return Redis' time in unix ms, and the circuits."""
        (seconds, micros), *hashes = self._link.call(
            [["TIME"], *(["HGETALL", self.key(model_name)] for model_name in model_names)]
        )
        return int(seconds) * 1000 + int(micros) // 1000, [_stored(flat) for flat in hashes]

    def store(self, writes: Mapping[str, Write]) -> dict[str, WriteReply]:
        """Return what became of each write, by model name."""
        commands = [
            self._scripts.command(_SCRIPT, [self.key(model_name)], _arguments(write))
            for model_name, write in writes.items()
        ]
        return dict(zip(writes, map(_reply, self._scripts.run(commands)), strict=True))


def read_circuits(client: redis.Redis, keys: Keys, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Circuit]:
    """Return the circuits of pairs of endpoint_id and Triton's model name; a closed one where Redis has none."""
    wanted = list(names)
    pipe = client.pipeline(transaction=False)
    for endpoint_id, model_name in wanted:
        pipe.hgetall(keys.circuit(endpoint_id, model_name))
    return {name: from_fields(fields) for name, fields in zip(wanted, pipe.execute(), strict=True)}


def force(
    client: redis.Redis, keys: Keys, endpoint_id: str, model_name: str, *, state: State | None, reason: str, by: str
) -> Circuit:
    """Hold a circuit open or closed, or with None let it go; returns it as it is from now on.

    Raises redis.RedisError where Redis did not answer; calling again is safe.
    """
    key = keys.circuit(endpoint_id, model_name)
    run = client.register_script(lua.load(_SCRIPT))
    for _ in range(_TRIES):
        fields = cast("dict[bytes, bytes]", client.hgetall(key))
        seconds, micros = client.time()
        before, now_ms = from_fields(fields), seconds * 1000 + micros // 1000
        circuit = forced(before, state, reason=reason, by=by, now_ms=now_ms)
        if circuit == before:
            return circuit
        write = Write(circuit, fields.get(b"version", b"").decode(), f"operator-{secrets.token_hex(8)}")
        if _reply(run(keys=[key], args=_arguments(write))).instead is None:
            return circuit
    raise redis.RedisError("the circuit is written too often by others: try again")


def _arguments(write: Write) -> list[Argument]:
    pairs = (text for pair in to_fields(write.circuit).items() for text in pair)
    return [write.expected, write.version, 0 if write.circuit.forced else _KEPT_MS, *pairs]


def _reply(reply: Sequence[Any]) -> WriteReply:
    now_ms, stands, flat = reply
    return WriteReply(int(now_ms), None if stands else _stored(flat))


def _stored(flat: Sequence[bytes]) -> Stored:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    return Stored(from_fields(fields), fields.get(b"version", b"").decode(errors="replace"))
