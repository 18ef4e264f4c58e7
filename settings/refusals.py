"""What is refused wherever it stands in the tree: streaming, and what this version cannot do yet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from settings.fields import Location, Refusal

STREAMING = "streaming is not supported: results are settled whole, with their usage"


@dataclass(frozen=True, slots=True)
class NotYet:
    """A field, or some of its values, that the configuration has and this version does not honour."""

    field: str
    values: tuple[object, ...] = ()

    def covers(self, value: object) -> bool:
        """Whether the value asks for what is not there; any value does where none are listed."""
        return value is not None and (not self.values or value in self.values)


# The one list: what a later version honours is a row less here. A field of runtime_config counts in `models` too.
NOT_YET = (NotYet("gpu_pool.adaptive", (True,)),)


def refusals_in(tree: Mapping[object, object]) -> list[Refusal]:
    """Everything in the tree that is refused whatever its types are."""
    return [*_streams(tree, ()), *_not_yet(tree)]


def _streams(value: object, at: Location) -> Iterator[Refusal]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            if str(key).lower() == "stream" and _is_true(each):
                yield Refusal((*at, str(key)), each, STREAMING)
            else:
                yield from _streams(each, (*at, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from _streams(each, (*at, index))


def _is_true(value: object) -> bool:
    """Whether a tensor made of the value would be true: a list of one is the same tensor as its element."""
    if isinstance(value, (list, tuple)):
        return any(_is_true(each) for each in value)
    return value is True or value == 1 or (isinstance(value, str) and value.strip().lower() in {"true", "1"})


def _not_yet(tree: Mapping[object, object]) -> Iterator[Refusal]:
    for row in NOT_YET:
        section, _, name = row.field.rpartition(".")
        for at in _sections(tree, section):
            value = _at(tree, (*at, name))
            if row.covers(value):
                reason = f"{_as_json(value)} is not" if row.values else "is not"
                yield Refusal((*at, name), value, f"{reason} supported by this version")


def _sections(tree: Mapping[object, object], section: str) -> Iterator[Location]:
    yield (section,) if section else ()
    models = tree.get("models")
    if section == "runtime_config" and isinstance(models, Mapping):
        yield from (("models", str(name)) for name in models)


def _at(tree: object, at: Location) -> object:
    for key in at:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def _as_json(value: object) -> str:
    return "true" if value is True else f"'{value}'"
