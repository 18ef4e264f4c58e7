"""`SPEEDINFER_…` variables as a tree: which field each one means, and its text as a value of that field's type."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr

from settings.fields import Location, Refusal, Section
from settings.files import UnreadableError, parse_json
from settings.schema import Settings

PREFIX = "SPEEDINFER_"
CONFIG_FILE = "SPEEDINFER_CONFIG"
_KUBERNETES_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$")
_LINKED = "is no field; Kubernetes makes it of a Service's name: set enableServiceLinks: false in the pod"
_TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Variables:
    """What the environment sets: the tree, which variable stands behind each place, and what cannot be read."""

    tree: dict[str, Any]
    names: Mapping[Location, str]
    refused: tuple[tuple[str, Refusal], ...]

    def source_of(self, at: Location) -> str | None:
        """The variable that set this place, what it stands in, or else something in it."""
        for length in range(len(at), 0, -1):
            if at[:length] in self.names:
                return self.names[at[:length]]
        within = (name for place, name in self.names.items() if at and place[: len(at)] == at)
        return next(within, None)

    def refuses(self, at: Location) -> bool:
        """Whether the variable for this very place was refused already."""
        return any(refusal.at == at for _, refusal in self.refused)


def read_variables(environ: Mapping[str, str]) -> Variables:
    """Every `SPEEDINFER_…` variable but `SPEEDINFER_CONFIG`.

    Levels are parted by `__`, field names in capitals, keys of a mapping as they are. One that means no field goes into
    the tree all the same, where it is refused as any unknown field is.
    """
    tree: dict[str, Any] = {}
    names: dict[Location, str] = {}
    refused: list[tuple[str, Refusal]] = []
    found = [(_place(name), name) for name in environ if name.startswith(PREFIX) and name != CONFIG_FILE]
    for (at, kind), name in sorted(found, key=lambda each: (len(each[0][0]), each[1])):
        if kind is None and _KUBERNETES_LINK.search(name):
            refused.append((name, Refusal(at, environ[name], _LINKED)))
            continue
        try:
            _put(tree, at, parsed(environ[name], kind))
        except UnreadableError as error:
            refused.append((name, Refusal(at, environ[name], str(error))))
        names[at] = name
    return Variables(tree, names, tuple(refused))


def _place(name: str) -> tuple[Location, Any]:
    """Where the variable's value goes, and the type of what stands there; None if nothing is known to."""
    kind: Any = Settings
    at: list[str] = []
    for segment in name.removeprefix(PREFIX).split("__"):
        section, entries = _section(kind), _entries(kind)
        if entries is not None:
            at.append(segment)
            kind = entries
        else:
            at.append(segment.lower())
            field = section.model_fields.get(segment.lower()) if section else None
            kind = field.annotation if field else None
    return tuple(at), kind


def _put(tree: dict[str, Any], at: Location, value: object) -> None:
    *sections, last = at
    for section in sections:
        tree = tree.setdefault(str(section), {})
        if not isinstance(tree, dict):
            raise UnreadableError(f"{section} is set as a whole to what has no fields, by another variable")
    tree[str(last)] = value


def parsed(text: str, kind: Any) -> object:
    """The variable's text as a value of the kind: text as it is, numbers and booleans read, all else as JSON.

    What does not read as the field's type stays text, for the schema to refuse. An empty one unsets an optional field.

    Raises:
        UnreadableError: the field takes a list or mapping, and this is no JSON.
    """
    plain = set(_plain(kind))
    if NoneType in plain and (not text or (text == "null" and not plain & {str, SecretStr})):
        return None
    if plain & {str, SecretStr, None, object}:
        return text if plain & {str, SecretStr} else _json_or_text(text)
    if bool in plain:
        return _TRUTHS.get(text.strip().lower(), text)
    if int in plain:
        return int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,30}\s*", text, re.ASCII) else text
    if float in plain:
        return _float(text)
    return parse_json(text)


def _float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _json_or_text(text: str) -> object:
    try:
        return parse_json(text)
    except UnreadableError:
        return text


def _plain(kind: Any) -> Iterator[Any]:
    """The types a field takes, without what bounds and describes them; text for anything written as text."""
    if get_origin(kind) is Annotated:
        yield from _plain(get_args(kind)[0])
    elif get_origin(kind) in {Union, UnionType}:
        for each in get_args(kind):
            yield from _plain(each)
    elif get_origin(kind) is Literal or getattr(kind, "__name__", "") == "Path":
        yield str
    else:
        yield get_origin(kind) or kind


def _section(kind: Any) -> type[Section] | None:
    return next((each for each in _plain(kind) if isinstance(each, type) and issubclass(each, Section)), None)


def _entries(kind: Any) -> Any | None:
    """The type of a mapping's values; None if the kind is no mapping."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_args(kind)[1] if get_origin(kind) is Mapping else None
