"""All rules of this plugin, by family."""

from __future__ import annotations

from . import data, evaluation, gradient, loss, mode, protocol, replicas, resume, wiring

__all__ = ["RULES"]

RULES = (
    *protocol.RULES,
    *wiring.RULES,
    *mode.RULES,
    *loss.RULES,
    *data.RULES,
    *resume.RULES,
    *gradient.RULES,
    *evaluation.RULES,
    *replicas.RULES,
)
