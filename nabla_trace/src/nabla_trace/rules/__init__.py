"""All rules of this plugin, by family."""

from __future__ import annotations

from . import honesty, losses, noise, samples, signal, step_size, width

__all__ = ["RULES"]

RULES = (
    *losses.RULES,
    *samples.RULES,
    *step_size.RULES,
    *noise.RULES,
    *signal.RULES,
    *width.RULES,
    *honesty.RULES,
)
