r"""Every Redis key: its type, how long it lives, who writes it and who reads it. docs/wire-contract.md fixes the public ones.

====================================== ======= ======================= ========================== =======================
key, after the namespace               type    lives                   written by                 read by
====================================== ======= ======================= ========================== =======================
``jobs:<model>``                       list    while it holds jobs     gateway, workers (returns) workers
``jobs:<model>\x06\x16<3|6|9>``        list    the same                Celery producers, by kombu workers
``claims:<incarnation>``               hash    while it holds claims   that run of a worker       any worker, if it dies
``claims``                             set     while there are claims  workers                    workers
``running``                            hash    while there are claims  workers                    workers
``leases``                             hash    1 day after a renewal   workers                    workers
``calls:<incarnation>``                string  1 hour                  that run of a worker       the same
``waiting``                            zset    while it holds jobs     workers                    any worker
``attempts:<job_id>``                  list    settled_ttl_seconds     workers                    workers
``retried:<job_id>``                   string  settled_ttl_seconds     workers                    workers
``settlements``                        stream  trimmed by its readers  workers                    settlement consumers
``result:<job_id>``                    string  result_ttl_seconds      workers                    gateway, ``submit --wait``
``settled:<job_id>``                   hash    settled_ttl_seconds     workers                    workers
``cancel:<job_id>``                    string  8 days                  gateway                    workers
``enqueued:<job_id>``                  set     1 hour                  ``submit``, ``batch``      ``submit``, ``batch``
``dead-letters``                       stream  trimmed by operators    workers                    operators
``worker:<worker_id>``                 hash    3 heartbeats            that worker                routing, operators
``workers``                            zset    registry                workers                    routing, operators
``model:<model>:workers``              zset    registry                workers                    routing, operators
``models``                             hash    registry                workers                    gateway, operators
``declared``                           zset    registry                workers                    workers
``paused``                             set     registry                operators                  workers, operators
``pauses``                             hash    registry                operators                  operators
``explained``                          string  1 minute                workers                    workers
``circuit:<endpoint_id>:<model_name>`` hash    1 day, or while forced  workers, operators         workers, operators
``pool:<name>``                        hash    1 day after a claim     workers                    workers, operators
``pool:<name>:slots``                  zset    while there are slots   workers                    workers, operators
``pool:<name>:grants``                 zset    1 minute                workers                    workers, operators
``pool:<name>:used``                   hash    as its last slot        workers                    workers
``pool:<name>:active``                 zset    1 day                   workers                    workers
``pool:<name>:waiting``                zset    1 hour                  workers                    workers
``pool:<name>:thirsty``                zset    1 hour                  workers                    workers
``pool:<name>:wants``                  hash    1 hour                  workers                    workers
``pool:<name>:paces``                  hash    1 day after a shorter one workers                   workers
``pool:<name>:head:<model>``           string  1 hour                  workers                    workers
``pool:<name>:turn:<incarnation>``     string  1 minute                workers                    the worker that is called
``probes:<endpoint_id>:<model_name>``  zset    as its last slot        workers                    workers
``alone:<endpoint_id>:<model_name>``   string  1 day                   workers                    workers
====================================== ======= ======================= ========================== =======================
"""

from dataclasses import dataclass
from typing import Final

PRIORITY_SEPARATOR: Final = "\x06\x16"
"""What kombu puts between a queue's name and a priority."""

PRIORITIES: Final = ("", f"{PRIORITY_SEPARATOR}3", f"{PRIORITY_SEPARATOR}6", f"{PRIORITY_SEPARATOR}9")
"""The lists of one queue in kombu's order: what has the smaller number is read first."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one namespace."""

    namespace: str

    @property
    def prefix(self) -> str:
        """Return what every key starts with, for the scripts that build the keys of single jobs."""
        return f"{self.namespace}:"

    def jobs(self, model: str) -> str:
        """Return the queue of a public model name."""
        return f"{self.namespace}:jobs:{model}"

    def model_of(self, queue: str) -> str:
        """Return the public model name of a queue or of one of its priority lists."""
        return queue.removeprefix(f"{self.namespace}:jobs:").partition(PRIORITY_SEPARATOR)[0]

    def is_jobs(self, name: str) -> bool:
        """Tell whether a name is that of a queue of jobs."""
        return name.startswith(f"{self.namespace}:jobs:")

    def claims(self, incarnation: str) -> str:
        """Return what one run of a worker has claimed: tag to record."""
        return f"{self.namespace}:claims:{incarnation}"

    def calls(self, incarnation: str) -> str:
        """Return the number of the last claim call of one run of a worker."""
        return f"{self.namespace}:calls:{incarnation}"

    @property
    def claimants(self) -> str:
        """Return the incarnations that hold claims."""
        return f"{self.namespace}:claims"

    @property
    def running(self) -> str:
        """Return the jobs that are claimed: job_id to ``<incarnation>/<tag>``."""
        return f"{self.namespace}:running"

    @property
    def leases(self) -> str:
        """Return the leases of the workers: worker_id to ``<incarnation> <counter> <lease_ms>``."""
        return f"{self.namespace}:leases"

    def cancel(self, job_id: str) -> str:
        """Return where a gateway says that a job is not wanted any more."""
        return f"{self.namespace}:cancel:{job_id}"

    @property
    def waiting(self) -> str:
        """Return the jobs that wait, mostly for a retry: record by due time (Redis' unix ms)."""
        return f"{self.namespace}:waiting"

    def attempts(self, job_id: str) -> str:
        """Return the ledger of a job that has not ended: attempts as JSON, oldest first."""
        return f"{self.namespace}:attempts:{job_id}"

    def retried(self, job_id: str) -> str:
        """Return which job the attempts of a job_id are of, once it waited for a retry: ``<fingerprint> <SHA-1 of its bytes>``."""
        return f"{self.namespace}:retried:{job_id}"

    @property
    def settlements(self) -> str:
        """Return the settlement queue."""
        return f"{self.namespace}:settlements"

    def result(self, job_id: str) -> str:
        """Return a job's result, the JSON of its settlement."""
        return f"{self.namespace}:result:{job_id}"

    def settled(self, job_id: str) -> str:
        """Return the marker of a job that has ended: fingerprint, status, stream_id."""
        return f"{self.namespace}:settled:{job_id}"

    def enqueued(self, job_id: str) -> str:
        """Return the marker of who enqueued a job with care: the tokens of the calls that were carried out."""
        return f"{self.namespace}:enqueued:{job_id}"

    @property
    def dead_letters(self) -> str:
        """Return what could not become a job."""
        return f"{self.namespace}:dead-letters"

    def worker(self, worker_id: str) -> str:
        """Return a worker's health."""
        return f"{self.namespace}:worker:{worker_id}"

    @property
    def workers(self) -> str:
        """Return the worker ids by their last heartbeat (Redis' unix ms)."""
        return f"{self.namespace}:workers"

    def model_workers(self, model: str) -> str:
        """Return the worker ids that are able to run a model, by their last heartbeat."""
        return f"{self.namespace}:model:{model}:workers"

    @property
    def models(self) -> str:
        """Return what gateways need to check jobs: public name to JSON."""
        return f"{self.namespace}:models"

    @property
    def declared(self) -> str:
        """Return the public names by when a worker last declared them (Redis' unix ms)."""
        return f"{self.namespace}:declared"

    @property
    def paused(self) -> str:
        """Return the public names of which no worker takes jobs, by an operator's word."""
        return f"{self.namespace}:paused"

    @property
    def pauses(self) -> str:
        """Return why each of ``paused`` is: public name to JSON."""
        return f"{self.namespace}:pauses"

    @property
    def explained(self) -> str:
        """Return who has logged last why jobs wait."""
        return f"{self.namespace}:explained"

    def circuit(self, endpoint_id: str, model_name: str) -> str:
        """Return the circuit of an endpoint's Triton model."""
        return f"{self.namespace}:circuit:{endpoint_id}:{model_name}"

    def pool(self, name: str) -> str:
        """Return the limits of a GPU pool that are in force, and its levels."""
        return f"{self.namespace}:pool:{name}"

    def pool_slots(self, name: str) -> str:
        """Return the slots of a pool that are taken, by when each lapses at the latest (Redis' unix ms)."""
        return f"{self.namespace}:pool:{name}:slots"

    def pool_grants(self, name: str) -> str:
        """Return the requests that a pool granted, by when (Redis' unix ms)."""
        return f"{self.namespace}:pool:{name}:grants"

    def pool_waiting(self, name: str) -> str:
        """Return the incarnations that wait for a pool's slots or requests, by since when (Redis' unix ms)."""
        return f"{self.namespace}:pool:{name}:waiting"

    def pool_paces(self, name: str) -> str:
        """Return the shortest times of the jobs of an adaptive pool: era and kind of job to ms."""
        return f"{self.namespace}:pool:{name}:paces"

    def pool_thirsty(self, name: str) -> str:
        """Return the incarnations that wait for a pool's tokens, by since when (Redis' unix ms)."""
        return f"{self.namespace}:pool:{name}:thirsty"

    def is_news(self, name: str) -> bool:
        """Tell whether a change of a key may end a wait that no push ends: a turn, a circuit, a pause."""
        kind, _, rest = name.removeprefix(self.prefix).partition(":")
        return kind in {"paused", "circuit"} or (kind == "pool" and ":turn:" in rest)


def lists_of(keys: Keys, model: str) -> tuple[str, ...]:
    """Return the lists of a model's queue, in the order in which they are read."""
    return tuple(keys.jobs(model) + priority for priority in PRIORITIES)
