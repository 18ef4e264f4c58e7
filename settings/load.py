"""Settings from a file and the environment, or everything that is wrong with them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource

from settings import addresses
from settings.environment import CONFIG_FILE, PREFIX, read_variables
from settings.fields import Location, Refusal, refusals_of
from settings.files import UnreadableError, read_tree
from settings.machine import filled_in, unreadable_certificates, with_secrets_read, with_templates_read
from settings.problems import ConfigurationError, Problem, problem
from settings.redis import RedisAccess, whole_url
from settings.schema import Settings

DEEPEST = 50  # levels; a tree that holds itself, as YAML can make one, has no end
_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})

__all__ = ["ConfigurationError", "Problem", "load_settings", "redis_url_from", "settings_from"]


def load_settings(path: Path | None, environ: Mapping[str, str], hostname: str) -> Settings:
    """The settings of a file with the environment's `SPEEDINFER_…` laid over them.

    Args:
        path: the file; without one, the file that `SPEEDINFER_CONFIG` names; without that, the environment alone.
        environ: the environment, also for headers that say `env:NAME`.
        hostname: the machine's name, for `{hostname}` and for the default `endpoint_id`.

    Raises:
        ConfigurationError: something is wrong; it lists all of it.
    """
    path = path or (Path(environ[CONFIG_FILE]) if environ.get(CONFIG_FILE) else None)
    if path is None and not any(name.startswith(PREFIX) for name in environ):
        raise ConfigurationError([Problem("configuration", "", "", _NOTHING_GIVEN)])
    variables = read_variables(environ)
    problems = [problem(refusal, name) for name, refusal in variables.refused]
    try:
        tree = read_tree(path) if path else {}
    except UnreadableError as error:
        raise ConfigurationError([Problem(str(path), "", "", str(error)), *problems]) from None
    settings, refused = _checked((variables.tree, tree), hostname, environ)
    # What a variable should have set is missing only because the variable itself was refused.
    refused = [r for r in refused if not variables.refuses(r.at)]
    if settings and not problems:
        return settings
    rest = str(path) if path else "environment"
    raise ConfigurationError([*problems, *_problems(refused, lambda at: variables.source_of(at) or rest)])


_NOTHING_GIVEN = f"none given: use --config FILE, or set {CONFIG_FILE} or {PREFIX}… variables"


def settings_from(
    tree: Mapping[str, Any],
    *,
    hostname: str = "localhost",
    environ: Mapping[str, str] = _NO_ENVIRONMENT,
    source: str = "settings",
) -> Settings:
    """The settings that the tree holds, as a file with it would give them.

    Raises:
        ConfigurationError: something is wrong; it lists all of it, with `source` as the file's name.
    """
    settings, refused = _checked((tree,), hostname, environ)
    if settings:
        return settings
    raise ConfigurationError(_problems(refused, lambda _: source))


def redis_url_from(environ: Mapping[str, str], url: SecretStr | None = None) -> SecretStr:
    """Where Redis is by the environment alone: `SPEEDINFER_REDIS_URL` with password, certificates and Sentinels' access.

    Of another ``url`` in its place, the variables add what fits it and is not in it.

    Raises:
        ConfigurationError: something is wrong; it lists all of it.
    """
    variables = read_variables({name: value for name, value in environ.items() if name.startswith(f"{PREFIX}REDIS_")})
    tree, unread = with_secrets_read(_fitting(variables.tree, url), environ)
    refused = [*unread, *unreadable_certificates(tree)]
    whole = None
    try:
        access = RedisAccess.model_validate(tree)
        whole = whole_url(url or access.redis_url, access.redis_password, access.redis_tls, access.redis_sentinel)
    except ValidationError as error:
        refused += refusals_of(error)
    problems = [problem(refusal, name) for name, refusal in variables.refused]
    problems += _problems(refused, lambda at: variables.source_of(at) or "environment")
    if problems or whole is None:
        raise ConfigurationError(problems)
    return whole


def _fitting(tree: Mapping[str, Any], url: SecretStr | None) -> dict[str, Any]:
    """What variables say beside an address that is not theirs, as far as it has a use there."""
    if url is None:
        return dict(tree)
    fits = {
        "redis_password": not addresses.holds_password(url),
        "redis_tls": url.get_secret_value().startswith("rediss"),
        "redis_sentinel": "+sentinel://" in url.get_secret_value(),
    }
    return {name: value for name, value in tree.items() if fits.get(name)}


class _Layers(BaseSettings, extra="allow"):
    """Takes no field of its own: it lays one source over another, level by level, as pydantic-settings does."""


def _layered(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The layers as one tree, the first above the rest."""
    # Given as sources, since as arguments some names of fields would mean something to BaseSettings.
    sources = tuple(InitSettingsSource(_Layers, dict(layer)) for layer in layers)
    return _Layers(_build_sources=(sources, {})).model_extra or {}


def _checked(
    layers: Sequence[Mapping[str, Any]], hostname: str, environ: Mapping[str, str]
) -> tuple[Settings | None, list[Refusal]]:
    """The settings that the layers make together, or else all that is refused."""
    if malformed := [refusal for layer in layers for refusal in _malformed(layer, ())]:
        return None, malformed
    known, unread = with_secrets_read(filled_in(_layered(layers), hostname), environ)
    complete, missing = with_templates_read(known)
    refused = [*unread, *missing, *unreadable_certificates(complete)]
    try:
        settings = Settings.model_validate(complete)
    except ValidationError as error:
        return None, [*refused, *refusals_of(error)]
    return (None, refused) if refused else (settings, [])


def _malformed(value: object, at: Location) -> Iterator[Refusal]:
    """What no schema can speak of: keys that are no text, text that is no Unicode, a tree without an end."""
    if len(at) > DEEPEST:
        yield Refusal(at[:3], None, f"is nested more than {DEEPEST} levels deep")
    elif isinstance(value, str):
        if not _is_unicode(value):
            yield Refusal(at, None, "is not valid Unicode")
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(key, str) and _is_unicode(key):
                yield from _malformed(each, (*at, key))
            else:
                yield Refusal((*at, ascii(key)), None, "is not a name: names are text")
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from _malformed(each, (*at, index))


def _is_unicode(text: str) -> bool:
    """A lone surrogate, which JSON's escapes can write, cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _problems(refused: Iterable[Refusal], source_of: Callable[[Location], str]) -> list[Problem]:
    return [problem(refusal, source_of(refusal.at)) for refusal in refused]
