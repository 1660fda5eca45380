"""Which signals any check looks at. What else a row logs may come and go."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from .chart import is_other_loss, is_rival
from .checks.metrics import is_metric
from .rules import RULES

__all__ = ["HELD_OUT", "apart", "is_judged"]

HELD_OUT = ("val_", "test_", "eval_")
"""How the names of what is measured on held-out data begin."""
_NEEDED = frozenset(need for rule in RULES for need in rule.needs)


@lru_cache(maxsize=512)
def is_judged(name: str) -> bool:
    """Whether a check looks at a signal: at one that a rule needs, a loss, or a metric held out."""
    return (
        name in _NEEDED
        or name.startswith(HELD_OUT)
        or is_other_loss(name)
        or is_rival(name)
        or is_metric(name)
    )


def apart(
    signals: Mapping[str, float | None],
) -> tuple[dict[str, float | None], dict[str, float]]:
    """Return what every row may have, and what is measured on held-out data now and then.

    What no check looks at is left out.
    """
    plain: dict[str, float | None] = {}
    held_out: dict[str, float] = {}
    for name, value in signals.items():
        if value is None or not is_judged(name):
            continue
        if name.startswith(HELD_OUT):
            held_out[name] = float(value)
        else:
            plain[name] = value
    return plain, held_out
