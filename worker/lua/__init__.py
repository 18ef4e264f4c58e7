"""The Redis scripts, one file each; every one says why it is safe to repeat."""

from importlib.resources import files


def load(name: str) -> str:
    """Return the source of ``<name>.lua``."""
    return files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
