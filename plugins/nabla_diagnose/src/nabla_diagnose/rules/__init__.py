"""All rules of this plugin, by family."""

from __future__ import annotations

from . import families, gradients, layers, level, samples, step_size, trend

__all__ = ["RULES"]

RULES = (
    *level.RULES,
    *trend.RULES,
    *step_size.RULES,
    *gradients.RULES,
    *layers.RULES,
    *samples.RULES,
    *families.RULES,
)
