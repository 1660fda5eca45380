"""Tells how the small state was after a step in brief, where a program saves it or ends.

A program goes on from what it saved. Whether it does so as the same run shows in the state beside
its parameters, of which a brief record says nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from nabla_core.artifacts.strict_json import JsonObject

from ..store.entries import NoteEntry
from .digests import optimizer_digest, state_digests
from .notes import STATE_NOTE
from .parts import Parts

__all__ = ["SavedState"]


class SavedState:
    """Notes the digests of the state after a brief step, once somebody asks for that state.

    Args:
        parts: the program.
        append: takes a record.
    """

    def __init__(self, parts: Parts, append: Callable[[NoteEntry], object]) -> None:
        self._parts = parts
        self._append = append
        self._handles: list[RemovableHandle] = []
        self.step: int | None = None
        """The step in brief after which nothing has happened yet."""

    def start(self) -> None:
        """Listen to optimizers that are asked for their state."""
        self._handles = [
            one.register_state_dict_pre_hook(self._asked) for one in self._parts.optimizers
        ]

    def stop(self) -> None:
        """Let go of the optimizers."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def note(self) -> None:
        """The program ends: note its state, if the last step is in brief and nothing was noted."""
        self._note(lambda: state_digests(self._parts, thorough=True))

    def _asked(self, optimizer: Optimizer) -> None:
        # of the optimizers alone: a scheduler may be stepped between the step and its own saving
        try:
            self._note(lambda: optimizer_digest(self._parts))
        except Exception:
            self.step = None  # nothing reaches the program; a resume says that it cannot be told

    def _note(self, look: Callable[[], dict[str, str]]) -> None:
        step, self.step = self.step, None
        if step is None:
            return
        body: JsonObject = {"step": step, "digests": {**look()}}
        self._append(NoteEntry(name=STATE_NOTE, body=body))
