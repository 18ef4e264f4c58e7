"""What a configuration takes from the machine it is read on: its name, `env:` and `file:` headers, certificate files."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from settings import addresses
from settings.fields import Refusal
from settings.files import UnreadableError, read_text


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


def with_headers_read(tree: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], list[Refusal]]:
    """The tree with `env:NAME` and `file:PATH` replaced by what they name, and what could not be read."""
    headers = tree.get("runtime_headers")
    if not isinstance(headers, Mapping):
        return tree, []
    read: dict[str, Any] = {}
    refused = []
    for name, value in headers.items():
        try:
            read[name] = _resolved(value, environ) if isinstance(value, str) else value
        except UnreadableError as error:
            refused.append(Refusal(("runtime_headers", name), value, str(error)))
    return {**tree, "runtime_headers": read}, refused


def _resolved(value: str, environ: Mapping[str, str]) -> str:
    kind, separator, name = value.partition(":")
    if not separator or kind not in {"env", "file"}:
        return value
    if kind == "file":
        try:
            return read_text(Path(name)).rstrip("\r\n")
        except UnreadableError as error:
            raise UnreadableError(f"the file {name} {error}") from None
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UnreadableError("what follows env: is not a variable's name")
    if not environ.get(name):
        raise UnreadableError(f"the environment variable {name} is not set, or empty")
    return environ[name]


def unreadable_certificates(tree: Mapping[str, Any]) -> Iterator[Refusal]:
    """Each file of `runtime_tls` that is none, or that this process may not read."""
    tls = tree.get("runtime_tls")
    for field in ("ca_file", "cert_file", "key_file"):
        path = tls.get(field) if isinstance(tls, Mapping) else None
        if isinstance(path, str) and not _readable(path):
            yield Refusal(("runtime_tls", field), path, "is not a file that can be read")


def _readable(path: str) -> bool:
    try:
        return Path(path).is_file() and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False
