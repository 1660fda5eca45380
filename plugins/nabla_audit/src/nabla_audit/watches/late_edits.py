"""Gradients that are changed between the step that used them and the call that clears them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from nabla_guard.facts import Place
from nabla_guard.loop.exact import sample_of
from nabla_guard.loop.watch import EVERY_EVENT, Watch
from nabla_guard.taps.instrument import INSTRUMENT
from nabla_guard.taps.optimizers import is_of_torch, parameters_of
from nabla_guard.taps.patching import Patches, Replacement
from nabla_guard.taps.place import user_place

if TYPE_CHECKING:
    from nabla_guard.loop.book import OptimizerRecord
    from nabla_guard.loop.live import LiveLoop

__all__ = ["LateEdit", "LateEditWatch"]

_STEPS = 8  # of each optimizer
_MOST = 4096  # elements of one gradient that are compared


@dataclass(slots=True, kw_only=True, eq=False)
class LateEdit:
    """What became of an optimizer's gradients behind its steps.

    Attributes:
        in_a_row: steps in a row whose gradients were changed and then cleared.
        gradients: how many were changed the last time.
        cleared_at: where they were cleared.
    """

    in_a_row: int = 0
    gradients: int = 0
    cleared_at: Place | None = None


class LateEditWatch(Watch):
    """Compares gradients behind the first steps of each optimizer with what ``zero_grad`` clears.

    Attributes:
        edits: what was found, by ``id`` of the facts of the optimizer.
    """

    patient = EVERY_EVENT

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.edits: dict[int, LateEdit] = {}
        self._used: dict[int, list[tuple[weakref.ref[Tensor], Tensor]]] = {}
        self._patches: Patches | None = None
        self._armed = False

    def start(self, patches: Patches) -> None:
        """Follow the calls that clear, once an optimizer has made one of its first steps."""
        self._patches, self._armed = patches, False

    def _arm(self, on: bool) -> None:
        """Replace the calls that clear, or put them back: later steps are spared the detour."""
        if on and not self._armed and self._patches is not None:
            self._patches.replace(Optimizer, "zero_grad", self._wrap_clear)
            self._patches.replace(Module, "zero_grad", self._wrap_clear)
        elif not on and self._armed and self._patches is not None:
            self._patches.restore()
        self._armed = on

    def stop(self) -> None:
        """Let go of the samples."""
        self._used.clear()

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Keep samples of the gradients that the step has used."""
        self._used.pop(id(record.facts), None)
        if record.judged and record.facts.steps <= _STEPS and is_of_torch(optimizer):
            self._arm(True)
            self._used[id(record.facts)] = [
                (found.ref, sample_of(grad, _MOST))
                for found in record.records
                if (held := found.ref()) is not None and (grad := _gradient_of(held)) is not None
            ]
        elif self._armed and not self._used:
            self._arm(False)

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """What backward adds to is used again."""
        self._used.clear()

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Another step may use what was changed."""
        self._used.clear()

    def _wrap_clear(self, original: Replacement) -> Replacement:
        def zero_grad(owner: Optimizer | Module, *args: object, **kwargs: object) -> object:
            if self._used:
                self.guarded(lambda: INSTRUMENT.keeper.unnoted(self._look, owner))
            return original(owner, *args, **kwargs)

        return zero_grad

    def _look(self, owner: Optimizer | Module) -> None:
        parameters = owner.parameters() if isinstance(owner, Module) else parameters_of(owner)
        cleared = set(map(id, parameters))
        for key, used in tuple(self._used.items()):
            alive = [(held, kept) for ref, kept in used if (held := ref()) is not None]
            if alive and all(id(held) in cleared for held, _ in alive):
                del self._used[key]
                self._compare(self.edits.setdefault(key, LateEdit()), alive)

    def _compare(self, edit: LateEdit, used: Sequence[tuple[Tensor, Tensor]]) -> None:
        changed = [grad for held, kept in used if (grad := _changed(held, kept)) is not None]
        edited = any(bool(grad.any()) for grad in changed)  # else cleared by hand
        edit.in_a_row = edit.in_a_row + 1 if edited else 0
        if edited:
            edit.gradients, edit.cleared_at = len(changed), user_place()


def _gradient_of(parameter: Tensor) -> Tensor | None:
    grad = parameter.grad
    return None if grad is None or grad.is_sparse else grad


def _changed(parameter: Tensor, kept: Tensor) -> Tensor | None:
    """The gradient of a parameter, if it is not what was kept of it."""
    grad = _gradient_of(parameter)
    if grad is None:
        return None
    now = sample_of(grad, _MOST)
    same = now.shape == kept.shape and torch.allclose(now, kept, rtol=0, atol=0, equal_nan=True)
    return None if same else grad
