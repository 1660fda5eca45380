"""One planted bug, as data: nothing is imported to list it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bug"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A fault that can be switched on and off, and the rule that names it.

    Attributes:
        rule: ID of the rule that must find it.
        program: ``"file:function"`` in ``programs``; called with a toolbox and whether the fault
            is there, it returns the issues that were found.
        summary: the fault in one line.
        needs: public names of nabla that the program calls.
        also: further rules that speak of the same fault rightly.
    """

    rule: str
    program: str
    summary: str
    needs: tuple[str, ...]
    also: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How a person calls it, e.g. ``"cleared-before-step"``."""
        return self.program.partition(":")[2].replace("_", "-")
