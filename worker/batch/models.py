"""What is known of the models that lines name: by a worker's configuration, and by what workers have registered."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import redis

from settings.schema import Settings
from tasks.reading import ModelLimits
from worker.keys import Keys

_MOST_REMEMBERED: Final = 1000
"""Models; a file may name a new one in each line."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What there is to know of a model before a job is sent; ``limits`` is None where the model is unknown.

    ``settled_ttl_seconds`` is how long its workers remember that a job has ended, None where they do not say.
    """

    limits: ModelLimits | None = None
    chat_template: str | None = None
    takes_prompts: bool = True
    settled_ttl_seconds: int | None = None


class Models:
    """Cards by public name: the configuration's word where it has one, else what workers say in the registry.

    How long the end of a job is remembered is for the workers alone to say, since it is they who write it down.
    ``met`` hears of each model that a line names for the first time.
    """

    def __init__(
        self,
        configured: Mapping[str, ModelCard],
        registered: Callable[[str], ModelCard],
        met: Callable[[str], None],
    ) -> None:
        self._configured = configured
        self._registered = registered
        self._met = met
        self._known: dict[str, ModelCard] = {}

    def card(self, model: str) -> ModelCard:
        """Return what is known of a model. Raises what asking the registry raises."""
        if model not in self._known:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[model] = self._found(model)
            self._met(model)
        return self._known[model]

    def _found(self, model: str) -> ModelCard:
        # Whatever the configuration says, it is the workers that forget.
        theirs = self._registered(model)
        ours = self._configured.get(model)
        if ours is None:
            return theirs
        template = theirs.chat_template if ours.chat_template is None else ours.chat_template
        return replace(ours, chat_template=template, settled_ttl_seconds=theirs.settled_ttl_seconds)


def cards_of(settings: Settings) -> dict[str, ModelCard]:
    """Return the card of each model that the configuration declares."""
    cards = {}
    for model in settings.supported_models:
        config = settings.runtime_for(model)
        limits = ModelLimits(config.max_prompt_bytes, config.max_tokens_limit, config.parameters)
        cards[model] = ModelCard(limits, config.chat_template, config.kind == "text")
    return cards


def registered_card(client: redis.Redis, keys: Keys, model: str) -> ModelCard:
    """Return what workers have registered of a model (docs/wire-contract.md, section 5)."""
    raw: Any = client.hget(keys.models, model)
    return card_in(raw)


def card_in(declaration: bytes | None) -> ModelCard:
    """Return the card that a declaration holds; an empty one where there is none that can be read."""
    try:
        said = json.loads(declaration) if declaration else {}
    except ValueError:
        return ModelCard()
    return _card(said) if isinstance(said, dict) and said else ModelCard()


def _card(said: dict[str, Any]) -> ModelCard:
    """Return the card; what is not as expected is taken as not said: workers check again."""
    prompt_bytes, tokens, parameters = (
        said.get(name) for name in ("max_prompt_bytes", "max_tokens_limit", "parameters")
    )
    limits = ModelLimits(
        max_prompt_bytes=prompt_bytes if isinstance(prompt_bytes, int) else 1 << 30,
        max_tokens_limit=tokens if isinstance(tokens, int) else None,
        parameters=frozenset(map(str, parameters)) if isinstance(parameters, list) else None,
    )
    template, remembered = said.get("chat_template"), said.get("settled_ttl_seconds")
    return ModelCard(
        limits,
        template if isinstance(template, str) else None,
        said.get("kind", "text") == "text",
        remembered if isinstance(remembered, int) else None,
    )
