"""What a configuration takes from the machine it is read on: its name, `env:` and `file:` secrets, templates, certificates."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from settings import addresses
from settings.fields import Location, Refusal
from settings.files import UnreadableError, read_text

_FILE = "file:"


def filled_in(tree: Mapping[str, Any], hostname: str) -> dict[str, Any]:
    """The tree with `{hostname}` replaced and, for a Triton on this machine, an `endpoint_id` that others cannot have."""
    filled = dict(tree)
    if isinstance(worker_id := filled.get("worker_id"), str):
        filled["worker_id"] = worker_id.replace("{hostname}", hostname)
    endpoint = filled.get("runtime_endpoint")
    if "endpoint_id" not in filled and isinstance(endpoint, str):
        with contextlib.suppress(PydanticCustomError):  # the schema says what is wrong with the endpoint
            filled["endpoint_id"] = addresses.endpoint_id_of(addresses.http_endpoint(endpoint), hostname)
    return filled


def with_secrets_read(tree: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], list[Refusal]]:
    """The tree with `env:NAME` and `file:PATH` replaced by what they name, and what could not be read."""
    read = tree
    refused = []
    for at, value in _secrets(tree):
        try:
            read = _replaced(read, at, _resolved(value, environ))
        except UnreadableError as error:
            read = _replaced(
                read, at, None
            )  # What it should have been is not known, so the schema has nothing to say of it.
            refused.append(Refusal(at, value, str(error)))
    return read, refused


def _secrets(tree: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """Each text that stands in a secret's place."""
    headers, sentinel = tree.get("runtime_headers"), tree.get("redis_sentinel")
    places: list[tuple[Location, object]] = [(("redis_password",), tree.get("redis_password"))]
    if isinstance(sentinel, Mapping):
        places.append((("redis_sentinel", "password"), sentinel.get("password")))
    if isinstance(headers, Mapping):
        places += [(("runtime_headers", name), value) for name, value in headers.items()]
    return ((at, value) for at, value in places if isinstance(value, str))


def with_templates_read(tree: dict[str, Any]) -> tuple[dict[str, Any], list[Refusal]]:
    """The tree with chat templates that are `file:PATH` replaced by the file's text, and what could not be read."""
    read = tree
    refused = []
    for at, value in _templates(tree):
        try:
            read = _replaced(read, at, _text_of(value.removeprefix(_FILE)))
        except UnreadableError as error:
            read = _replaced(read, at, None)
            refused.append(Refusal(at, value, str(error)))
    return read, refused


def _templates(tree: Mapping[str, Any]) -> Iterator[tuple[Location, str]]:
    """Each chat template that stands in a file of its own, as models' repositories have theirs."""
    models = tree.get("models")
    names = [str(name) for name in models] if isinstance(models, Mapping) else []
    for section in [("runtime_config",), *(("models", name) for name in names)]:
        value: object = tree
        for name in (*section, "chat_template"):
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, str) and value.startswith(_FILE):
            yield (*section, "chat_template"), value


def _replaced(tree: Mapping[str, Any], at: Location, value: str | None) -> dict[str, Any]:
    """The tree with another value at this place, or with none."""
    name = str(at[0])
    others = {key: each for key, each in tree.items() if key != name}
    if at[1:]:
        return {**others, name: _replaced(tree[name], at[1:], value)}
    return others if value is None else {**others, name: value}


def _resolved(value: str, environ: Mapping[str, str]) -> str:
    kind, separator, name = value.partition(":")
    if not separator or kind not in {"env", "file"}:
        return value
    if kind == "file":
        return _text_of(name).rstrip("\r\n")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UnreadableError("what follows env: is not a variable's name")
    if not environ.get(name):
        raise UnreadableError(f"the environment variable {name} is not set, or empty")
    return environ[name]


def _text_of(name: str) -> str:
    try:
        return read_text(Path(name))
    except UnreadableError as error:
        raise UnreadableError(f"the file {name} {error}") from None


def unreadable_certificates(tree: Mapping[str, Any]) -> Iterator[Refusal]:
    """Each file of `runtime_tls` and `redis_tls` that is none, or that this process may not read."""
    for section in ("runtime_tls", "redis_tls"):
        tls = tree.get(section)
        for field in ("ca_file", "cert_file", "key_file"):
            path = tls.get(field) if isinstance(tls, Mapping) else None
            if isinstance(path, str) and not _readable(path):
                yield Refusal((section, field), path, "is not a file that can be read")


def _readable(path: str) -> bool:
    try:
        return Path(path).is_file() and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False
