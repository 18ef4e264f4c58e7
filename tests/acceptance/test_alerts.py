"""Every rule of deploy/prometheus can be made to fire: real workers, for whom all goes wrong that there is an alert for."""

import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.fleet import KEYS, Client, Fleet, WorkerProcess, models, run
from tests.acceptance.gateway import push, push_jobs, wait_for_results
from tests.acceptance.holding import HoldingLine
from tests.acceptance.prometheus import BINARY, INSTALL, Prometheus, rules
from tests.acceptance.scrapes import Series, page, scrape, value
from tests.waiting import wait_until
from worker.sandbox.places import free_port
from worker.sandbox.triton_server import TritonServer
from worker.sandbox.valkey_server import ValkeyServer

SERVED, FAULTY, MISFIT, GONE = "acme/served", "acme/faulty", "acme/misfit", "acme/gone"
BEHIND = models(
    served="text_generation", faulty="faulty", misfit={"model_name": "text_generation", "input_name": "prompt_text"}
)
LEASE = 3.0  # Longer than a stall of a worker that is not meant to be dead.
LONG_AGO = "2020-01-01T00:00:00Z"


@dataclass
class Trouble:
    """Three workers: one that looks on, one that will be taken for dead, with its way to Triton, and one without Triton and, later, without Redis."""

    fleet: Fleet
    lonely: ValkeyServer
    looker: WorkerProcess
    stalled: WorkerProcess
    line: HoldingLine
    cut_off: WorkerProcess
    prometheus: Prometheus | None

    @property
    def addresses(self) -> list[str]:
        """Where the workers show their metrics."""
        return [str(worker.config["metrics_address"]) for worker in (self.looker, self.stalled, self.cut_off)]

    @property
    def client(self) -> Client:
        """The queues' Valkey."""
        return self.looker.client

    def wait(self, alert: str, worker: WorkerProcess, holds: Callable[[Series], object], **labels: str) -> None:
        """Return once the worker exports what makes the alert fire; and it fires, where there is a Prometheus, with these labels."""
        wait_until(lambda: holds(scrape(worker)), description=f"what {alert} looks at is so", interval=0.1)
        if self.prometheus is not None:
            assert self.prometheus.wait_until_fires(alert).items() >= labels.items()


def left_a_model(fleet: Fleet) -> None:
    """Leave a job to a model whose only worker ran and ended, and the look at why it waits to whoever starts next."""
    last = fleet.start(worker_id="last", **models(gone="text_generation"))
    assert last.stop() == 0
    push_jobs(last.client, "left", model=GONE)
    last.client.delete(KEYS.explained)


@pytest.fixture(scope="module")
def trouble(tmp_path_factory: pytest.TempPathFactory, triton_server: TritonServer) -> Iterator[Trouble]:
    """Workers that run, one that has left with a job waiting for it, and a Prometheus that looked before they did."""
    directory = tmp_path_factory.mktemp("alerts")
    ports = [free_port() for _ in range(3)]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    with (
        ValkeyServer() as valkey,
        ValkeyServer() as lonely,
        HoldingLine(triton_server.url) as line,
        Fleet(directory, triton_server.url, valkey.url) as fleet,
    ):
        prometheus = Prometheus(directory, addresses) if BINARY else None
        if prometheus is not None:
            prometheus.__enter__()
        try:
            if prometheus is not None:
                prometheus.wait_until_fires("SpeedInferNoWorker")
            left_a_model(fleet)
            away = {"runtime_endpoint": f"http://127.0.0.1:{free_port()}", "redis_url": lonely.url}
            short = {"lease_seconds": LEASE, "concurrency": 1, "runtime_endpoint": line.http_url}
            looker = fleet.start(
                config=fleet.configuration(
                    metrics_address=addresses[0], worker_id="looker", lease_seconds=LEASE, **BEHIND
                ),
                until=(),
            )
            stalled = fleet.start(
                config=fleet.configuration(metrics_address=addresses[1], worker_id="stalled", **short), until=()
            )
            cut_off = fleet.start(
                config=fleet.configuration(metrics_address=addresses[2], worker_id="cut-off", **away), until=()
            )
            looker.wait_until_state("degraded")
            stalled.wait_until_state("ready")
            cut_off.wait_until_state("unavailable")
            yield Trouble(fleet, lonely, looker, stalled, line, cut_off, prometheus)
        finally:
            if prometheus is not None:
                prometheus.__exit__()


def test_no_worker_is_none_that_is_scraped(trouble: Trouble) -> None:
    """Each that runs says who it is, so that none does is seen."""
    for worker in (trouble.looker, trouble.stalled, trouble.cut_off):
        assert value(scrape(worker), "speedinfer_worker_info", worker_id=worker.worker_id) == 1


def test_a_queue_of_which_nobody_takes_jobs(trouble: Trouble) -> None:
    """The model does not fit, its job has waited for long, and nothing of it is in hand or was ever settled."""
    push_jobs(trouble.client, "waits", model=MISFIT, enqueued_at=LONG_AGO)
    looker = trouble.looker
    trouble.wait(
        "SpeedInferNothingConsumed",
        looker,
        lambda found: (
            value(found, "speedinfer_queue_jobs", model=MISFIT) == 1
            and value(found, "speedinfer_jobs_total", model=MISFIT) == 0
            and value(found, "speedinfer_in_flight_jobs", model=MISFIT) == 0
            and value(found, "speedinfer_model_paused", model=MISFIT) == 0
        ),
    )
    trouble.wait(
        "SpeedInferOldestJobTooOld",
        looker,
        lambda found: (value(found, "speedinfer_oldest_job_age_seconds", model=MISFIT) or 0) > 900,
        model=MISFIT,
        severity="warning",
    )
    trouble.wait(
        "SpeedInferModelOutOfOrder",
        looker,
        lambda found: value(found, "speedinfer_model_state", model=MISFIT, state="paused") == 1,
    )
    assert (
        run("speedinfer", "models", "pause", MISFIT, "--reason", "test", "--redis-url", trouble.fleet.redis_url).code
        == 0
    )
    wait_until(
        lambda: value(scrape(looker), "speedinfer_model_paused", model=MISFIT) == 1, description="the pause is seen"
    )


def test_a_model_whose_last_worker_is_gone(trouble: Trouble) -> None:
    """Another worker tells of it, whose model it never was; the first look of one is soon after its start, the next a minute later."""

    def told(found: Series) -> bool:
        return value(found, "speedinfer_model_why", model=GONE, kind="no_worker") == 1

    workers = [trouble.looker, trouble.stalled]
    (teller,) = wait_until(
        lambda: [worker for worker in workers if told(scrape(worker))][:1],
        description="a worker tells of the model without one",
        timeout=90,
        interval=0.1,
    )
    trouble.wait("SpeedInferModelWithoutWorker", teller, told, model=GONE, severity="critical")


def test_jobs_that_cannot_be_billed_and_what_is_no_job(trouble: Trouble) -> None:
    """Each code and reason has its series before the first of them, so that the first is seen."""
    before = scrape(trouble.looker)
    assert value(before, "speedinfer_jobs_total", model=FAULTY, code="runtime_usage_unavailable") == 0
    assert value(before, "speedinfer_dead_letters_total", model=SERVED, reason="not_json") == 0
    push_jobs(trouble.client, "no-usage", model=FAULTY, prompt="both:absent")
    push(trouble.client, b"nonsense", queue=KEYS.jobs(SERVED))
    wait_for_results(trouble.client, "no-usage")
    trouble.wait(
        "SpeedInferUsageMissing",
        trouble.looker,
        lambda found: value(found, "speedinfer_jobs_total", model=FAULTY, code="runtime_usage_unavailable") == 1,
    )
    trouble.wait(
        "SpeedInferDeadLetters",
        trouble.looker,
        lambda found: value(found, "speedinfer_dead_letters_total", model=SERVED, reason="not_json") == 1,
        model=SERVED,
        reason="not_json",
    )
    trouble.wait(
        "SpeedInferFailureRateHigh",
        trouble.looker,
        lambda found: value(found, "speedinfer_jobs_total", model=FAULTY) == 1,
    )


def test_a_circuit_that_is_open(trouble: Trouble) -> None:
    """By an operator's word, which is the quickest way."""
    opened = run(
        *("speedinfer", "models", "circuit", "open", FAULTY, "--reason", "test", "--redis-url", trouble.fleet.redis_url)
    )
    assert opened.code == 0, opened
    trouble.wait(
        "SpeedInferCircuitOpen",
        trouble.looker,
        lambda found: value(found, "speedinfer_circuit_state", model=FAULTY, state="open") == 1,
    )


def test_a_worker_that_was_taken_for_dead(trouble: Trouble) -> None:
    """Another ends it and runs its job again; when it goes on, its own result comes too late."""
    trouble.line.hold()
    push_jobs(trouble.client, "runs", prompt="work")
    wait_until(lambda: trouble.line.answers_held, description="its inference has ended, and it does not know")
    trouble.stalled.signal(signal.SIGSTOP)
    try:
        trouble.wait(
            "SpeedInferRecoveryHappened",
            trouble.looker,
            lambda found: value(found, "speedinfer_workers_declared_dead_total") == 1,
        )
        assert value(scrape(trouble.looker), "speedinfer_claims_reaped_total") == 1
    finally:
        trouble.line.let_go()
        trouble.stalled.signal(signal.SIGCONT)
    trouble.wait(
        "SpeedInferClaimsLost",
        trouble.stalled,
        lambda found: value(found, "speedinfer_claims_lost_total") == 1,
        instance=trouble.addresses[1],
    )
    wait_for_results(trouble.client, "runs")


def test_a_worker_without_triton_and_redis(trouble: Trouble) -> None:
    """It says so as long as it lives."""
    trouble.wait(
        "SpeedInferWorkerNotReady",
        trouble.cut_off,
        lambda found: value(found, "speedinfer_worker_state", state="unavailable") == 1,
    )
    trouble.lonely.kill()
    trouble.wait("SpeedInferRedisUnreachable", trouble.cut_off, lambda found: value(found, "speedinfer_redis_up") == 0)
    found = scrape(trouble.cut_off)
    assert value(found, "speedinfer_queue_jobs") is None
    assert (value(found, "speedinfer_redis_errors_total", kind="unavailable") or 0) > 0
    assert page(trouble.cut_off, "/healthz") == (200, "alive\n")


@pytest.mark.skipif(not BINARY, reason=INSTALL)
def test_a_real_prometheus_takes_what_workers_show(trouble: Trouble) -> None:
    """Every scrape is one that it can read, and each series of a family is there as that family."""
    assert trouble.prometheus is not None
    up = trouble.prometheus.query("up")
    assert {one["metric"]["instance"]: one["value"][1] for one in up} == dict.fromkeys(trouble.addresses, "1")
    (count,) = trouble.prometheus.query('count({__name__=~"speedinfer_.*"})')
    (seen,) = trouble.prometheus.query("count(count by (__name__) ({__name__=~'speedinfer_.*'}))")
    assert int(count["value"][1]) > int(seen["value"][1]) > 20


def test_there_is_no_other_alert() -> None:
    """Whoever adds a rule makes it fire here."""
    named = {*re.findall(r'"(SpeedInfer[A-Za-z]+)"', Path(__file__).read_text())}
    assert named == {rule["alert"] for rule in rules()}
