"""The Redis scripts: every state change that can race, one file each, named after its guard; each says why it is safe to repeat."""

import re
from importlib.resources import files
from typing import Final

_INCLUDE: Final = re.compile(r"^-- include (\w+)$", re.MULTILINE)


def load(name: str) -> str:
    """Return the source of ``<name>.lua``, with a line ``-- include other`` replaced by ``other.lua``."""
    source = files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda line: load(line[1]), source)
