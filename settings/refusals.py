"""What is refused wherever it stands in the tree: streaming."""

from collections.abc import Iterator, Mapping

from settings.fields import Location, Refusal

STREAMS = frozenset({"stream", "streaming"})
"""What models call the input that makes them stream, and clients the parameter, in lower case."""
STREAMING = "streaming is not supported: results are settled whole, with their usage"


def refusals_in(tree: Mapping[object, object]) -> list[Refusal]:
    """Everything in the tree that is refused whatever its types are."""
    return list(_streams(tree, ()))


def _streams(value: object, at: Location) -> Iterator[Refusal]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            if str(key).lower() in STREAMS and _is_true(each):
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
