"""All rules of this plugin, by family."""

from __future__ import annotations

from . import mode, protocol, wiring

__all__ = ["RULES"]

RULES = (*protocol.RULES, *wiring.RULES, *mode.RULES)
