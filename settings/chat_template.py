"""A model's chat template: Jinja, in a sandbox, as the models' own repositories write theirs."""

import json
from typing import Any, Final

from jinja2 import Template, TemplateSyntaxError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_TOKENS: Final = "_token"
"""How the names end that a tokenizer would fill in: left undefined they would vanish from the prompt without a word."""


class UnusableTemplateError(ValueError):
    """The text is no chat template; the message says why."""


def compiled(source: str) -> Template:
    """Return the template, ready to be rendered.

    It may use `messages`, `add_generation_prompt`, `raise_exception`, `strftime_now`, the filter `tojson`, and the tags
    `break`, `continue` and `generation`.

    Raises:
        UnusableTemplateError: its syntax is wrong, or it needs a token's text that it does not set itself.
    """
    if not source.strip():
        raise UnusableTemplateError("must not be empty")
    environment = _environment()
    try:
        unset = meta.find_undeclared_variables(environment.parse(source))
        template = environment.from_string(source)
    except TemplateSyntaxError as error:
        raise UnusableTemplateError(f"is no Jinja template: {error.message} (line {error.lineno})") from None
    except Exception as error:  # noqa: BLE001 - Python compiles what Jinja makes of it, and refuses it in ways of its own
        raise UnusableTemplateError(f"is no Jinja template: {type(error).__name__}") from None
    _refuse_tokens(unset)
    return template


def _refuse_tokens(unset: set[str]) -> None:
    for name in sorted(name for name in unset if name.endswith(_TOKENS)):
        raise UnusableTemplateError(f"uses {name}, which it has to set itself: {{% set {name} = '…' %}}")


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _as_json
    return environment


class _Generation(Extension):
    """``{% generation %}``, by which templates mark what an assistant said: it changes nothing of a prompt."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return what stands in the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _as_json(value: Any, indent: int | None = None) -> str:
    # Jinja's own filter escapes for HTML, which no model has seen.
    return json.dumps(value, ensure_ascii=False, indent=indent)
