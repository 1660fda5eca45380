"""What is wrong with nabla or a plugin, as opposed to the user's program."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something wrong with nabla or a plugin, not with the user's program.

    Attributes:
        rule: ID of a NAB rule.
        plugin: name of the plugin, with its distribution where known.
        message: what happened, with its cause.
        hint: the next step.
    """

    rule: str
    plugin: str
    message: str
    hint: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "rule": self.rule,
            "plugin": self.plugin,
            "message": self.message,
            "hint": self.hint,
        }
