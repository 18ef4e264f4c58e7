"""Does the faults of a plan to the processes of a stage."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby

import redis

from tests.chaos.crew import Member
from tests.chaos.evidence import Incident
from tests.chaos.plan import Fault, FaultKind
from tests.chaos.stage import Stage
from worker.connections import redis_client


@dataclass
class Faults:
    """The faults of a run; ``say`` is told of each as it begins, ``incidents`` are those that are over."""

    stage: Stage
    say: Callable[[str], None]
    incidents: list[Incident] = field(default_factory=list)

    def happen(self, faults: Sequence[Fault], start: float) -> None:
        """Do the faults, each at its time after ``start`` (unix seconds), those of different targets beside each other."""
        tracks = [list(group) for _, group in groupby(sorted(faults, key=lambda one: one.track), lambda one: one.track)]
        with ThreadPoolExecutor(max(1, len(tracks))) as together:
            done: list[Future[None]] = [together.submit(self._one_by_one, track, start) for track in tracks]
        for one in done:
            one.result()

    def _one_by_one(self, faults: Sequence[Fault], start: float) -> None:
        for fault in faults:
            time.sleep(max(0.0, start + fault.at - time.time()))
            self._do(fault)

    def _do(self, fault: Fault) -> None:
        worker = self.stage.crew[fault.target] if fault.kind.track == "worker" else None
        target = worker.worker_id if worker else fault.kind.track
        strikes = fault.kind in {FaultKind.WORKER_KILL, FaultKind.WORKER_FREEZE, FaultKind.LINE_STALL}
        victims = worker.held(redis_client(self.stage.servers.valkey.url)) if worker and strikes else set()
        begin = time.time()
        self.say(f"{begin:.3f} {fault}")
        self._begin(fault, worker)
        time.sleep(fault.seconds)
        self._end(fault, worker)
        self.incidents.append(Incident(fault.kind, target, begin * 1000, time.time() * 1000, frozenset(victims)))

    def _begin(self, fault: Fault, worker: Member | None) -> None:
        valkey, triton = self.stage.servers.valkey, self.stage.servers.triton
        match fault.kind:
            case FaultKind.REDIS_KILL:
                valkey.kill()
            case FaultKind.REDIS_FREEZE:
                valkey.freeze()
            case FaultKind.CLIENT_KILL:
                self._command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")
            case FaultKind.SCRIPT_FLUSH:
                self._command("SCRIPT", "FLUSH")
            case FaultKind.TRITON_KILL:
                triton.kill()
            case FaultKind.TRITON_FREEZE:
                triton.freeze()
            case kind:
                assert worker is not None
                begin: dict[FaultKind, Callable[[], None]] = {
                    FaultKind.WORKER_KILL: worker.kill,
                    FaultKind.WORKER_FREEZE: worker.freeze,
                    FaultKind.WORKER_DRAIN: worker.drain,
                    FaultKind.LINE_CUT: worker.line.cut,
                    FaultKind.LINE_STALL: worker.line.stall,
                    FaultKind.LINE_DELAY: worker.line.delay,
                    FaultKind.LINE_LOSE: worker.line.lose,
                }
                begin[kind]()

    def _end(self, fault: Fault, worker: Member | None) -> None:
        valkey, triton = self.stage.servers.valkey, self.stage.servers.triton
        match fault.kind:
            case FaultKind.REDIS_KILL:
                valkey.restart()
            case FaultKind.REDIS_FREEZE:
                valkey.thaw()
            case FaultKind.TRITON_KILL:
                triton.restart()
            case FaultKind.TRITON_FREEZE:
                triton.thaw()
            case FaultKind.WORKER_KILL | FaultKind.WORKER_DRAIN if worker:
                worker.start(fresh_id=fault.fresh_id)
            case FaultKind.WORKER_FREEZE if worker:
                worker.thaw()
            case FaultKind.LINE_STALL | FaultKind.LINE_DELAY | FaultKind.LINE_LOSE if worker:
                worker.line.mend()

    def _command(self, *words: str) -> None:
        try:
            with redis_client(self.stage.servers.valkey.url) as client:
                client.execute_command(*words)
        except redis.RedisError:
            self.say(f"{words[0]} {words[1]} was not done: Redis was away")
