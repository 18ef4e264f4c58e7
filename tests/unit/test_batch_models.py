"""What is known of a model before its jobs are sent: by a configuration, and by what workers have registered."""

import json
from typing import Any

import pytest

from settings.load import settings_from
from tasks.reading import ModelLimits
from tests.acceptance.fleet import SEED
from worker.batch.models import ModelCard, Models, card_in, cards_of

OURS = ModelCard(ModelLimits(10), "ours")
THEIRS = ModelCard(ModelLimits(20), "theirs", settled_ttl_seconds=60)


def known(configured: ModelCard | None, registered: ModelCard) -> ModelCard:
    """The card of a model of which a configuration and the registry say this."""
    cards = {} if configured is None else {"m": configured}
    return Models(cards, lambda _: registered, lambda _: None).card("m")


def test_the_configurations_word_goes_before_the_registrys() -> None:
    """Where it says nothing of a template, the registry is heard; and always of how long the workers remember."""
    assert known(OURS, THEIRS) == ModelCard(OURS.limits, "ours", settled_ttl_seconds=60)
    assert known(OURS, ModelCard()) == OURS
    assert known(None, THEIRS) == THEIRS
    assert known(ModelCard(OURS.limits), THEIRS) == ModelCard(OURS.limits, "theirs", settled_ttl_seconds=60)


def test_each_model_is_asked_for_once() -> None:
    """However many lines name it; and whoever wants to know hears of each new one."""
    asked: list[str] = []
    met: list[str] = []

    def registered(model: str) -> ModelCard:
        asked.append(model)
        return ModelCard()

    models = Models({}, registered, met.append)
    for name in ("a", "b", "a", "a"):
        models.card(name)
    assert asked == met == ["a", "b"]


def test_a_file_that_names_a_model_a_line_does_not_fill_the_memory() -> None:
    """A thousand are remembered."""
    models = Models({}, lambda _: ModelCard(), lambda _: None)
    for number in range(2500):
        models.card(str(number))
    assert len(models._known) <= 1000


def test_a_configuration_says_what_its_worker_will_check() -> None:
    """Limits, mapped parameters and the template of each public name."""
    tree: dict[str, Any] = {**SEED, "supported_models": ["acme/model-1", "acme/chat"]}
    tree["runtime_config"] = {**SEED["runtime_config"], "max_tokens_limit": 9, "options": {"seed": "SEED"}}
    tree["models"] = {"acme/chat": {"chat_template": "{{ messages }}"}}
    limits = ModelLimits(1 << 20, 9, frozenset({"seed"}))
    assert cards_of(settings_from(tree)) == {
        "acme/model-1": ModelCard(limits),
        "acme/chat": ModelCard(limits, "{{ messages }}"),
    }


@pytest.mark.parametrize(
    ("declared", "card"),
    [
        (
            {
                "kind": "text",
                "max_tokens_limit": 9,
                "max_prompt_bytes": 5,
                "parameters": ["seed"],
                "chat_template": "t",
                "settled_ttl_seconds": 60,
            },
            ModelCard(ModelLimits(5, 9, frozenset({"seed"})), "t", settled_ttl_seconds=60),
        ),
        (
            {"kind": "text", "max_tokens_limit": None, "max_prompt_bytes": 5, "parameters": None, "since": "x"},
            ModelCard(ModelLimits(5, None, None)),
        ),
        ({"kind": "tensors"}, ModelCard(ModelLimits(1 << 30, None, None), takes_prompts=False)),
        ({"parameters": 3, "max_prompt_bytes": "5"}, ModelCard(ModelLimits(1 << 30, None, None))),
        ({}, ModelCard()),
        ([], ModelCard()),
    ],
)
def test_a_declaration_says_what_workers_check(declared: Any, card: ModelCard) -> None:
    """What is not as expected is taken as not said: the worker checks again."""
    assert card_in(json.dumps(declared).encode()) == card


@pytest.mark.parametrize("raw", [None, b"", b"{", b"\xff"])
def test_nothing_declared_is_nothing_known(raw: bytes | None) -> None:
    """Lines of such a model are sent as they are."""
    assert card_in(raw) == ModelCard()
