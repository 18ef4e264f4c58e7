"""Durations in words for people."""


def duration(milliseconds: float) -> str:
    """Return a duration such as ``1.2 s`` or ``3 min``."""
    seconds = milliseconds / 1000
    for limit, divisor, unit in ((1, 0.001, "ms"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.{1 if unit == 's' else 0}f} {unit}"
    return f"{seconds / 86_400:.0f} d"
