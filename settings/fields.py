"""The kinds of values that settings are made of: bounded numbers, names, frozen mappings, and their refusals."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

Location = tuple[int | str, ...]
T = TypeVar("T")
N = TypeVar("N", int, float)

TEN_YEARS = 315_360_000  # seconds; longer is a slip of the keyboard, and near what Redis can expire
GIBIBYTE = 1 << 30
INT32_MAX = (1 << 31) - 1


class Section(BaseModel):
    """A frozen part of the settings that takes no unknown field, no value of another type, no NaN or infinity."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,  # an input may be a password
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Return this one: it is frozen in all its parts, and as a field's default pydantic would copy it."""
        return self


@dataclass(frozen=True, slots=True)
class Shown:
    """What the reference prints for a field where its type, name and default do not say it."""

    unit: str = ""
    default: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One value that cannot be accepted: where it stands in the tree, what it is, and why."""

    at: Location
    value: object
    reason: str


def refuse(refusals: Iterable[Refusal]) -> None:
    """Raise all of them as one pydantic error, each at its own place; nothing if there are none.

    Called in a validator, the places are relative to what it validates.
    """
    details = [
        InitErrorDetails(type=PydanticCustomError("refused", "{reason}", {"reason": r.reason}), loc=r.at, input=r.value)
        for r in refusals
    ]
    if details:
        raise ValidationError.from_exception_data("settings", details)


def refusals_of(error: ValidationError) -> list[Refusal]:
    """Each thing that pydantic found wrong, in words for people."""
    return [
        Refusal(e["loc"], MISSING if e["type"] == "missing" else e["input"], _words(e["type"], e["msg"]))
        for e in error.errors(include_url=False)
        if e["type"] != "default_factory_not_called"  # a default that stands on another field, which is refused itself
    ]


def _words(kind: str, message: str) -> str:
    return _WORDS.get(kind) or message.replace("Input should", "must")


class Missing:
    """Stands for the value of a field that is not there."""


MISSING = Missing()
UNKNOWN_FIELD = "there is no such field"
_WORDS = {
    "missing": "must be set",
    "extra_forbidden": UNKNOWN_FIELD,
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "tuple_type": "must be a list",
    "too_short": "must have at least one entry",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "path_type": "must be a path",
    "finite_number": "must be a finite number",
}


def validated(handler: Callable[[object], T], value: object, refused: list[Refusal]) -> T:
    """What `handler` makes of the value, unless it or `refused` has something against it; then all of it is raised.

    Without this the first layer to refuse would hide what the next one has to say.
    """
    try:
        result = handler(value)
    except ValidationError as error:
        taken = {r.at for r in refused}
        refuse([*refused, *(r for r in refusals_of(error) if r.at not in taken)])
        raise
    refuse(refused)
    return result


def at_most(data: Mapping[str, Any], bound: str, default: N) -> N:
    """The default, or the smaller bound that was set for it: shortening one field must not mean writing two."""
    smaller: N = min(default, data.get(bound, default))
    return smaller


def refuse_if_above(section: BaseModel, *pairs: tuple[str, str]) -> None:
    """Refuse each field that is greater than its bound, another field of the same section."""
    refuse(
        Refusal((name,), getattr(section, name), f"must be at most {bound} ({getattr(section, bound):g})")
        for name, bound in pairs
        if getattr(section, name) > getattr(section, bound)
    )


def matching(pattern: str, words: str) -> AfterValidator:
    """A validator for text that must match the pattern in full; `words` say so to people."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise PydanticCustomError("refused", "{reason}", {"reason": words})
        return text

    return AfterValidator(check)


def _no_parent_folder(text: str) -> str:
    if ".." in text:
        raise PydanticCustomError("refused", "must not contain '..'")
    return text


Seconds = Annotated[float, Field(gt=0, le=TEN_YEARS)]
WholeSeconds = Annotated[int, Field(ge=1, le=TEN_YEARS)]
Bytes = Annotated[int, Field(ge=1, le=GIBIBYTE)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
PerMinute = Annotated[int, Field(ge=1, le=1_000_000_000_000)]

PublicName = Annotated[
    str,
    matching(r"[A-Za-z0-9._/-]{1,200}", "must be 1 to 200 letters, digits, '.', '_', '-' or '/'"),
    AfterValidator(_no_parent_folder),
]
TritonName = Annotated[
    str, matching(r"(?!\.+$)[A-Za-z0-9._-]{1,200}", "must be letters, digits, '.', '_' or '-', and not dots alone")
]
TensorName = Annotated[str, matching(r"[^\x00-\x1f\x7f]{1,200}", "must be 1 to 200 printable characters")]
ParameterName = Annotated[str, matching(r"[A-Za-z0-9._-]{1,100}", "must be 1 to 100 letters, digits, '.', '_' or '-'")]

K = TypeVar("K")
V = TypeVar("V")
FrozenMapping = Annotated[Mapping[K, V], AfterValidator(MappingProxyType), PlainSerializer(dict)]
