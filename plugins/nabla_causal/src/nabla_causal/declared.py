"""Commands as data: nothing is imported to list them."""

from __future__ import annotations

from nabla_core.declarations import Command

__all__ = ["COMMANDS"]

COMMANDS = (
    Command(
        name="explain",
        target="nabla_causal.cli:explain",
        summary="Say what may have caused the findings of a report.",
    ),
)
