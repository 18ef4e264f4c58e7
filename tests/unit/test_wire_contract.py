"""docs/wire-contract.md, the schemas and the code say the same."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from settings.schema import Settings
from tasks import errors, schemas
from tasks.entries import DeadLetterEntry, SettlementEntry
from tasks.errors import RULES, Again, ErrorCode, JobError
from tasks.job import GenerateJob
from tasks.reading import DeadLetterReason, ValidJob, read_job
from tasks.result import Attempt, AttemptCode, ErrorBody, GenerateResult, Timings
from tasks.usage import Usage
from tests.jobs import MAX_JOB_BYTES, MODEL
from tests.unit.test_schemas import ANY_PARAMETER
from worker.clock import MonotonicClock, RedisClock
from worker.gate import Cause, Standing
from worker.health import Load, ModelHealth, Process, WorkerState, declarations, health_fields
from worker.keys import PRIORITIES, Keys
from worker.tally import Tally

PAGE = (Path(__file__).parents[2] / "docs" / "wire-contract.md").read_text(encoding="utf-8")

TABLES_OF_FIELDS: dict[str, tuple[str, type[Any]]] = {
    "Fields of a job": ("field", GenerateJob),
    "Fields of a settlement entry": ("field", SettlementEntry),
    "The result": ("field", GenerateResult),
    "usage": ("field of a usage", Usage),
    "error": ("field of an error", ErrorBody),
    "attempt": ("field of an attempt", Attempt),
    "timings": ("field of the timings", Timings),
    "dead letter": ("field of a dead letter", DeadLetterEntry),
}

ENTRIES = (SettlementEntry, DeadLetterEntry)
"""Their fields are texts, and their tables have no column for a type."""

AGAIN = {
    frozenset({Again.NEVER}): "no",
    frozenset({Again.UP_TO_MAX_ATTEMPTS}): "up to `max_attempts`",
    frozenset({Again.WHEN_RECOVERED}): "when the model has recovered, uncharged",
    frozenset({Again.NEVER, Again.ONCE}): "a rejection never, a model exception once",
}
CIRCUIT = {frozenset({True}): "yes", frozenset({False}): "no", frozenset({True, False}): "partly"}


def section(heading: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"the page has no heading {heading!r}"
    return found[1]


def tables(text: str) -> Iterator[list[list[str]]]:
    """Every table, as rows of cells; the first is its head."""
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
        yield [rows[0], *rows[2:]]


def rows_below(head: str, text: str = PAGE) -> list[list[str]]:
    """The rows of the one table whose first column has this head."""
    (found,) = [table[1:] for table in tables(text) if table[0][0] == head]
    return found


def named(cell: str) -> list[str]:
    """What a cell names in code type."""
    return re.findall(r"`([^`]+)`", cell)


def blocks(language: str, text: str = PAGE) -> list[str]:
    """The code blocks of a language (for JSON with the kind of example it is)."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def failures(root: type[JobError] = JobError) -> Iterator[type[JobError]]:
    """Every failure that has a code of its own."""
    for failure in root.__subclasses__():
        if failure.__module__ == errors.__name__:
            yield from [failure] if hasattr(failure, "code") else []
            yield from failures(failure)


@pytest.mark.parametrize("title", TABLES_OF_FIELDS)
def test_the_fields_are_those_of_the_type(title: str) -> None:
    """In the type's order, each once."""
    head, model = TABLES_OF_FIELDS[title]
    rows = rows_below(head, section(title) if head == "field" else PAGE)
    assert [named(row[0]) for row in rows] == [[name] for name in model.model_fields]


def test_what_is_required_is_said() -> None:
    """A gateway reads from the table what it has to send."""
    required = {named(row[0])[0] for row in rows_below("field", section("Fields of a job")) if row[2] == "yes"}
    assert required == {name for name, field in GenerateJob.model_fields.items() if field.is_required()}


@pytest.mark.parametrize("title", [title for title, (_, model) in TABLES_OF_FIELDS.items() if model not in ENTRIES])
def test_null_is_said(title: str) -> None:
    """Wherever the type takes null the table says so, and nowhere else."""
    head, model = TABLES_OF_FIELDS[title]
    fields = model.model_json_schema()["properties"]
    for row in rows_below(head, section(title) if head == "field" else PAGE):
        takes_null = {"type": "null"} in fields[named(row[0])[0]].get("anyOf", ())
        assert row[1].endswith("or null") == takes_null, row[0]


def test_the_codes_are_those_of_the_code() -> None:
    """Every code, in the order of the code, with what follows from it."""
    rows = rows_below("code", section("Error codes"))
    assert [named(row[0]) for row in rows] == [[code.value] for code in ErrorCode]
    for code, row in zip(ErrorCode, rows, strict=True):
        of_code = [failure for failure in failures() if failure.code is code]
        assert row[2] == AGAIN[frozenset(failure.again for failure in of_code)], code
        assert row[3].partition(":")[0] == CIRCUIT[frozenset(failure.counts_for_circuit for failure in of_code)], code
        assert row[4] == ("yes" if RULES[code].retryable else "no"), code


def test_the_attempt_codes_are_those_of_the_code() -> None:
    """Every one, in the order of the code."""
    assert [named(row[0]) for row in rows_below("code", section("Attempt codes"))] == [[code] for code in AttemptCode]


def test_the_reasons_of_dead_letters_are_those_of_the_code() -> None:
    """Every one, in the order of the code."""
    assert [named(row[0]) for row in rows_below("reason")] == [[reason.value] for reason in DeadLetterReason]


def keys_of_the_code() -> set[str]:
    """Every key that worker/keys.py can make, with its arguments as <names>."""
    keys = Keys("speedinfer")
    made: set[str] = set()
    for name, member in inspect.getmembers_static(Keys):
        if isinstance(member, property) and name != "prefix":
            made.add(getattr(keys, name))
        elif inspect.isfunction(member) and not name.startswith("_") and name not in ("model_of", "is_jobs", "is_news"):
            made.add(getattr(keys, name)(*(f"<{each}>" for each in list(inspect.signature(member).parameters)[1:])))
    return made


def test_every_key_of_the_code_is_on_the_page() -> None:
    """With its type and how long it lives, and no other."""
    rows = rows_below("key")
    on_the_page = [named(row[0])[0].replace("\\|", "|") for row in rows]
    assert len(on_the_page) == len(set(on_the_page))
    assert all(row[1] for row in rows)
    priorities = "|".join(priority[-1] for priority in PRIORITIES if priority)
    expected = keys_of_the_code() | {rf"speedinfer:jobs:<model>\x06\x16<{priorities}>"}
    assert set(on_the_page) == expected


def test_the_fields_of_a_workers_health_are_those_it_writes() -> None:
    """Every one, in the order in which it writes them."""
    configured = Settings.model_validate(json.loads(blocks("json", section("1. Configuration"))[0]))
    process = Process(version="1", config_digest="0", hostname="host", pid=1, started_at="2026-11-30T10:00:00.000Z")
    load = Load(in_flight=0, slots=1, at=process.started_at, draining=False)
    models = {configured.supported_models[0]: ModelHealth(Standing.READY)}
    written = health_fields(configured, process, Tally(RedisClock(MonotonicClock())), models, load)
    rows = rows_below("field of a worker's health")
    assert [name for row in rows for name in named(row[0])] == list(written)
    assert set(named(rows[0][1])) == set(WorkerState)
    (of_model,) = json.loads(written["models"]).values()
    rows = rows_below("field of a worker's model")
    assert [named(row[0])[0] for row in rows] == list(of_model)
    assert set(named(rows[0][2])) == set(Standing)
    assert set(named(rows[2][2])) == set(Cause)


def test_the_fields_of_a_declaration_are_those_it_writes() -> None:
    """In their order; the script adds the last."""
    configured = Settings.model_validate(json.loads(blocks("json", section("1. Configuration"))[0]))
    (declared,) = declarations(configured, {MODEL: ANY_PARAMETER}).values()
    rows = rows_below("field of a declaration")
    assert [named(row[0])[0] for row in rows] == [*json.loads(declared + "}"), "since"]


@pytest.mark.parametrize("example", blocks("json job"))
def test_an_example_of_a_job_is_one(example: str) -> None:
    """To the worker and to the schema."""
    read = read_job(example.encode(), queue_model=MODEL, limits=ANY_PARAMETER, max_job_bytes=MAX_JOB_BYTES)
    assert isinstance(read, ValidJob)
    Draft202012Validator(json.loads(schemas.rendered()["job.json"])).validate(json.loads(example))


@pytest.mark.parametrize("example", blocks("json result"))
def test_an_example_of_a_result_is_one(example: str) -> None:
    """To the type and to the schema, and with the code's own words."""
    result = GenerateResult.model_validate_json(example)
    Draft202012Validator(json.loads(schemas.rendered()["result.json"])).validate(json.loads(example))
    if result.error:
        assert result.error.retryable is RULES[result.error.code].retryable
        assert result.error.message.startswith(RULES[result.error.code].message[:-1])


def test_there_are_examples_of_both_ends() -> None:
    """The tests above cannot pass for want of examples."""
    assert len(blocks("json job")) >= 2
    assert {json.loads(example)["status"] for example in blocks("json result")} == {"succeeded", "failed"}


def test_what_the_shell_examples_push_is_a_job() -> None:
    """Copied and pasted, it runs."""
    pushed = re.findall(r"redis-cli LPUSH (\S+) '(.+)'", "".join(blocks("sh")))
    assert pushed
    for queue, raw in pushed:
        read = read_job(
            raw.encode(), queue_model=Keys("speedinfer").model_of(queue), limits=ANY_PARAMETER, max_job_bytes=1000
        )
        assert isinstance(read, ValidJob)


def test_the_python_examples_are_python() -> None:
    """And the jobs in them are jobs."""
    jobs = 0
    for example in blocks("python"):
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "job":
                jobs += 1
                raw = json.dumps(ast.literal_eval(node.value)).encode()
                read = read_job(raw, queue_model=MODEL, limits=ANY_PARAMETER, max_job_bytes=1000)
                assert isinstance(read, ValidJob)
    assert jobs == 3


def test_the_schemas_are_linked() -> None:
    """Each file, once, with whether it is closed."""
    rows = rows_below("file")
    assert [re.findall(r"\]\(schemas/(.+)\)", row[0])[0] for row in rows] == list(schemas.PUBLISHED)
    for row, (_, model) in zip(rows, schemas.PUBLISHED.values(), strict=True):
        assert row[2] == ("refused" if model.model_config.get("extra") == "forbid" else "skipped")


def test_links_within_the_page_lead_somewhere() -> None:
    """As GitHub makes anchors of headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
