"""A configuration file's text as a tree: JSON, TOML or YAML, told apart by suffix."""

import json
import tomllib
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml


class UnreadableError(Exception):
    """The file or text is no tree; the message says where and why, without quoting the text."""


def read_tree(path: Path) -> dict[str, Any]:
    """The mapping that the file holds.

    Raises:
        UnreadableError: it cannot be read, has another suffix, wrong syntax, a key twice, or no mapping at its top.
    """
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise UnreadableError("must end in .json, .toml, .yaml or .yml")
    tree = parse(read_text(path))
    if not isinstance(tree, dict):
        raise UnreadableError("must hold a mapping of fields to values")
    return tree


def read_text(path: Path) -> str:
    """The file's text, without a byte order mark.

    Raises:
        UnreadableError: it cannot be read or is not UTF-8.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            # A pipe would be waited for until somebody writes into it.
            raise UnreadableError("is not a file")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is not UTF-8 (byte {error.start})") from None
    except (OSError, ValueError) as error:  # a NUL in a path is a ValueError
        raise UnreadableError(f"cannot be read: {getattr(error, 'strerror', None) or 'not a path'}") from None


def parse_json(text: str) -> Any:
    """The JSON text's value.

    Raises:
        UnreadableError: its syntax is wrong, it has a key twice, NaN or an infinity, or is nested too deep.
    """
    try:
        return json.loads(text, object_pairs_hook=_each_key_once, parse_constant=_no_such_number)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except (ValueError, RecursionError):
        raise UnreadableError("is not JSON that can be read: a number too long, or nested too deep") from None


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UnreadableError(f"has the key {twice[:60]!r} twice in one object")
    return tree


def _no_such_number(text: str) -> None:
    raise UnreadableError(f"has {text}, which is not a JSON number")


def _parse_toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnreadableError(f"is not TOML: {error}") from None
    except (ValueError, RecursionError):
        raise UnreadableError("is not TOML that can be read: a number too long, or nested too deep") from None


class _Loader(yaml.SafeLoader):
    """YAML's plain types, with no key twice: of two equal keys, YAML would drop one without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # no field has such a name; it is refused as one
            if key.value in seen:
                mark = key.start_mark
                where = f"line {mark.line + 1}, column {mark.column + 1}"
                raise UnreadableError(f"has the key {key.value[:60]!r} twice in one mapping ({where})")
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _parse_yaml(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise UnreadableError(f"is not YAML: {error.problem}{where}") from None
    except yaml.reader.ReaderError as error:
        raise UnreadableError(f"is not YAML: {error.reason} (position {error.position})") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UnreadableError("is not YAML that can be read") from None


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    ".json": parse_json,
    ".toml": _parse_toml,
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
}
