"""``speedinfer models circuit open``, ``close`` and ``auto``: whether a circuit goes by its own rules, or by an operator's word."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.cli.failures import NotRight
from worker.cli.options import Debug, Json, Namespace, RedisConfig, RedisUrl
from worker.cli.output import escaped, wants_json, write_json, write_note
from worker.cli.pauses import Model, Reason, ReasonOfAnEnd, operator, public_name, reason_given
from worker.cli.targets import optional_settings, redis_target

if TYPE_CHECKING:
    from worker.circuit import State
    from worker.fleet import Fleet

Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="ID",
        help="Only at this endpoint_id. Without it: at every one whose live workers serve the model.",
        show_default=False,
    ),
]

Circuits = list[tuple[str, str]]
"""Pairs of endpoint_id and Triton's model name."""


def app() -> typer.Typer:
    """Return the command with its subcommands."""
    group = typer.Typer(no_args_is_help=True)
    group.callback()(circuit)
    group.command("open")(hold_open)
    group.command("close")(hold_closed)
    group.command("auto")(let_go)
    return group


def circuit() -> None:
    """Hold the circuit of a model open or closed, whatever its jobs and looks give, or let it go by its own rules again.

    A circuit is of a Triton model at an endpoint: other public names of the same Triton model share it. Status shows the reason.

    Examples:
        speedinfer models circuit open acme/model-1 --endpoint triton-a:8000 --reason "GPU 3 overheats"
        speedinfer models circuit auto acme/model-1
    """


def hold_open(
    name: Model,
    *,
    reason: Reason,
    endpoint: Endpoint = None,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Let no worker of the endpoint take the model's jobs, until auto. They wait, or go to another endpoint."""
    from worker.circuit import State

    where = _Where(name, endpoint, config, redis_url, namespace)
    _force(where, State.OPEN, reason_given(reason), as_json=wants_json(as_json))


def hold_closed(
    name: Model,
    *,
    reason: Reason,
    endpoint: Endpoint = None,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Let the workers of the endpoint take the model's jobs whatever fails, until auto."""
    from worker.circuit import State

    where = _Where(name, endpoint, config, redis_url, namespace)
    _force(where, State.CLOSED, reason_given(reason), as_json=wants_json(as_json))


def let_go(
    name: Model,
    *,
    reason: ReasonOfAnEnd = None,
    endpoint: Endpoint = None,
    as_json: Json = None,
    config: RedisConfig = None,
    redis_url: RedisUrl = None,
    namespace: Namespace = None,
    _debug: Debug = False,
) -> None:
    """Let the circuit go by its own rules again; one that was held open is tried with a few jobs first."""
    where = _Where(name, endpoint, config, redis_url, namespace)
    _force(where, None, "" if reason is None else reason_given(reason), as_json=wants_json(as_json))


@dataclass(frozen=True, slots=True)
class _Where:
    """Which circuits, in which Redis, as the options say it."""

    name: str
    endpoint: str | None
    config: Path | None
    redis_url: str | None
    namespace: str | None


def _force(where: _Where, state: "State | None", reason: str, *, as_json: bool) -> None:
    from worker.circuit_store import force
    from worker.fleet import read_fleet

    model = public_name(where.name)
    target = redis_target(where.config, where.redis_url, where.namespace)
    with target.connected() as client:
        fleet = read_fleet(client, target.keys)
        for endpoint_id, triton_model in _found(model, where, fleet):
            circuit = force(client, target.keys, endpoint_id, triton_model, state=state, reason=reason, by=operator())
            others = sorted(_names_behind(fleet, endpoint_id, triton_model) - {model})
            told = Told(endpoint_id, triton_model, circuit.state, circuit.forced, reason or None, others)
            _tell(told, as_json=as_json)


def _found(model: str, where: _Where, fleet: "Fleet") -> Circuits:
    """Return the circuits of a public name: where live workers serve it, and where the configuration says. Raises NotRight."""
    found = {
        (worker.fields.get("endpoint_id", ""), str(worker.model(model).get("triton_model") or ""))
        for worker in fleet.serving(model)
    }
    settings = optional_settings(where.config)
    if settings is not None and model in settings.supported_models:
        found.add((settings.endpoint_id, settings.runtime_for(model).model_name))
    wanted = sorted(pair for pair in found if all(pair) and where.endpoint in {None, pair[0]})
    if not wanted:
        at = f" at {escaped(where.endpoint)}" if where.endpoint else ""
        raise NotRight(
            f"no live worker serves {model}{at}, so which circuit is meant is not known: name a configuration that has it with --config FILE"
        )
    return wanted


def _names_behind(fleet: "Fleet", endpoint_id: str, triton_model: str) -> set[str]:
    return {
        name
        for worker in fleet.workers
        if worker.fields.get("endpoint_id") == endpoint_id
        for name, said in worker.models.items()
        if said.get("triton_model") == triton_model
    }


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a circuit; ``others`` are further public names of the same Triton model."""

    endpoint_id: str
    triton_model: str
    state: str
    forced: bool
    reason: str | None
    others: list[str]


def _tell(told: Told, *, as_json: bool) -> None:
    if as_json:
        write_json(asdict(told))
        return
    words = f"is held {told.state}" if told.forced else f"goes by its own rules: it is {told.state}"
    because = f": {told.reason}" if told.reason else ""
    typer.echo(f"the circuit of {told.triton_model} at {told.endpoint_id} {words}{because}")
    if told.others:
        write_note(f"speedinfer: the same Triton model serves {', '.join(told.others)}, of which that is so too")
