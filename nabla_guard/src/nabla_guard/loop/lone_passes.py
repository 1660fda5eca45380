"""Backward passes that no optimizer's step follows: of a loop without one, or skipped by a scaler.

A loop that updates its weights by hand is judged after each backward pass, before its update: one
read of the loss and of the norms of the gradients. Where a gradient scaler skips a step, only the
loss before scaling is looked at: no smaller scale can repair a loss that is not finite itself. One
or two overflows are what a scaler is for; a NaN is not, and from the third in a row on the run does
not recover.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..facts import NumberFacts, OptimizerFacts
from ..taps.instrument import INSTRUMENT
from ..taps.patching import Patches, Replacement
from ..taps.place import user_place
from ..taps.transforms import in_transform
from .bare_passes import BarePasses
from .exact import fault_in
from .signals import can_read, is_ordinary, norms, read
from .watch import EVERY_EVENT, Watch

if TYPE_CHECKING:
    from ..facts import Call, TensorFault
    from ..origin.findings import Findings
    from .book import OptimizerRecord
    from .gradients import GradientRecord
    from .live import LiveLoop

__all__ = ["LonePass", "LonePasses"]

_MAX_FOUND = 8
_IN_A_ROW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LonePass:
    """A bad pass that no step followed.

    Attributes:
        step: at which step of the loop, or which pass of a loop without steps.
        numbers: what was not finite.
        recovered: a scaler skipped the step or the program handled it, and the run went on with
            finite losses.
    """

    step: int
    numbers: NumberFacts
    recovered: bool = False


class LonePasses(Watch):
    """Finds the first bad pass of those that no step of an optimizer follows.

    Attributes:
        found: each first bad pass after a good one; a detector takes them out.
        skipped_at: number of backward passes at the last step that a scaler skipped.
        followed: told of each pass that a step should follow, while somebody wants to know.
    """

    patient = EVERY_EVENT  # a calm loop has an optimizer that steps

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.found: list[LonePass] = []
        self.skipped_at = 0
        self.followed: Callable[[Sequence[GradientRecord]], None] | None = None
        self._passes = 0
        self._bad = False
        self._loss: Tensor | None = None
        self._skipped: LonePass | None = None
        self._in_a_row = 0
        self._bare = BarePasses(self._is_trained, self.guarded)

    @property
    def is_scaled(self) -> bool:
        """Whether a loss was scaled and the scaler has not been asked to step since."""
        return self._loss is not None

    def start(self, patches: Patches) -> None:
        """Listen to gradient scalers, and to derivatives that write no gradient."""
        if not self._has_stepped():
            INSTRUMENT.tell_derivatives(self._derived)
        patches.replace(torch.amp.GradScaler, "scale", self._wrap_scale)
        patches.replace(torch.amp.GradScaler, "step", self._wrap_step)

    def stop(self) -> None:
        """Let go of the loss; what was skipped last may have been the end of the run."""
        self._loss = None
        self._settle(recovered=True)
        INSTRUMENT.tell_derivatives(None)
        self._bare.end()
        bare, self._bare.found = self._bare.found, []
        for found in bare:
            handled = found.is_handled
            self.found.append(LonePass(step=found.step, numbers=found.numbers, recovered=handled))

    def backward_ended(
        self, roots: Sequence[Tensor], written: Sequence[GradientRecord], call: Call
    ) -> None:
        """Judge a pass of a loop without an optimizer."""
        if in_transform():
            return
        if self._has_optimizer(written):
            if self.followed is not None:
                self.followed(written)
            return
        index, self._passes = self._passes, self._passes + 1
        losses = [root.detach() for root in roots if is_ordinary(root) and can_read(root)]
        grads = _gradients(written)
        with torch.no_grad():
            measured = norms([*losses, *(grad for _, _, grad in grads)])
            finite = math.isfinite(sum(read([norm for norm in measured if norm is not None])))
        if not finite and not self._bad and not self._bare.inherits(losses):
            single = len(losses) == 1 and losses[0].numel() == 1
            numbers = NumberFacts(
                optimizer=OptimizerFacts(name="the update by hand"),
                loss=float(losses[0]) if single else None,
                loss_at=user_place(),
                gradients=_faults(grads),
                gradient_count=len(grads),
                findings=self._again([(name, parameter) for name, parameter, _ in grads]),
            )
            self.found.append(LonePass(step=index, numbers=numbers))
        self._bad = self._bare.follows = not finite
        INSTRUMENT.keeper.pass_ends()

    def _derived(
        self, outputs: Sequence[Tensor], args: tuple[object, ...], results: object
    ) -> None:
        self.guarded(lambda: self._bare.derived(outputs, args, results))

    def _has_stepped(self) -> bool:
        """Whether an optimizer trains here, whose steps are judged."""
        return bool(self.loop.scope.chosen) or any(record.facts.steps for record in self.loop.book)

    def _is_trained(self, inputs: Sequence[Tensor]) -> bool:
        """Whether an optimizer steps here, or holds what the derivatives are taken by."""
        if self._has_stepped():
            return True
        held = (record.facts.parameters for record in self.loop.book if record.ref() is not None)
        if any(parameter.running for parameters in held for parameter in parameters):
            return True
        return any(found.facts.optimizers for found in self.loop.gradients.known(inputs))

    def _has_optimizer(self, written: Sequence[GradientRecord]) -> bool:
        """Whether a step of an optimizer will follow, at which the pass is judged."""
        if not written:
            return self._has_stepped()
        return bool(self.loop.scope.chosen) or any(found.facts.optimizers for found in written)

    def _again(self, parameters: Sequence[tuple[str, Tensor]]) -> Findings | None:
        """Execute the pass again, a few times per run at most."""
        from ..origin.replay import execute_again

        keeper = INSTRUMENT.keeper
        if not keeper.enabled or len(self.found) >= _MAX_FOUND:
            return None
        return execute_again(keeper.kept, parameters, keeper.kept.since)

    # ------------------------------------------------------------------ scalers
    def _wrap_scale(self, original: Replacement) -> Replacement:
        def scale(scaler: torch.amp.GradScaler, outputs: object) -> object:
            self.guarded(lambda: self._remember(outputs))
            return original(scaler, outputs)

        return scale

    def _remember(self, outputs: object) -> None:
        alone = isinstance(outputs, Tensor) and outputs.numel() == 1 and is_ordinary(outputs)
        self._loss = outputs.detach() if isinstance(outputs, Tensor) and alone else None

    def _wrap_step(self, original: Replacement) -> Replacement:
        def step(scaler: object, optimizer: object, *args: object, **kwargs: object) -> object:
            before = self._steps_of(optimizer)
            outcome = original(scaler, optimizer, *args, **kwargs)
            self.guarded(lambda: self._stepped(optimizer, before))
            return outcome

        return step

    def _steps_of(self, optimizer: object) -> int:
        if not isinstance(optimizer, torch.optim.Optimizer):
            return -1
        record = self.loop.book.known(optimizer)
        return -1 if record is None else record.facts.steps

    def _stepped(self, optimizer: object, before: int) -> None:
        """A scaler's step is over: judge the loss if the optimizer was not called."""
        loss, self._loss = self._loss, None
        skipped = before >= 0 and self._steps_of(optimizer) == before
        if skipped:
            self.skipped_at = self.loop.backwards
        value = float(loss) if skipped and loss is not None and can_read(loss) else 0.0
        if math.isfinite(value) or not isinstance(optimizer, torch.optim.Optimizer):
            self._settle(recovered=True)
            self._in_a_row = 0
            return
        self._in_a_row += 1
        record = self.loop.book.get(optimizer, self.loop.scope.has_optimizer)
        if self._in_a_row == 1 and record.judged:
            numbers = self._numbers(record, value)
            self._skipped = LonePass(step=self.loop.coming, numbers=numbers, recovered=True)
            if math.isnan(value):
                self._settle(recovered=False)
        elif self._in_a_row == _IN_A_ROW:
            self._settle(recovered=False)

    def _settle(self, *, recovered: bool) -> None:
        skipped, self._skipped = self._skipped, None
        if skipped is not None:
            self.found.append(replace(skipped, recovered=recovered))

    def _numbers(self, record: OptimizerRecord, loss: float) -> NumberFacts:
        named = [
            (found.facts.name, p) for found in record.records if (p := found.ref()) is not None
        ]
        return NumberFacts(
            optimizer=record.facts,
            loss=loss,
            loss_at=record.facts.backward_at,
            findings=self._again(named),
        )


def _gradients(written: Sequence[GradientRecord]) -> list[tuple[str, Tensor, Tensor]]:
    """Name, parameter and gradient of those that a pass wrote."""
    return [
        (found.facts.name or f"parameter {index}", parameter, parameter.grad)
        for index, found in enumerate(written)
        if (parameter := found.ref()) is not None and parameter.grad is not None
    ]


def _faults(grads: Sequence[tuple[str, Tensor, Tensor]]) -> tuple[TensorFault, ...]:
    faults = (fault_in(name, grad) for name, _, grad in grads)
    return tuple(fault for fault in faults if fault is not None)
