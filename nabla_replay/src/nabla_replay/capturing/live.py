"""Steps that nobody records by hand: seen by the live instrument when the optimizer has acted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from nabla_guard.taps.instrument import INSTRUMENT

from .parts import Parts

__all__ = ["StepBoundary"]

Write = Callable[[], None]


class StepBoundary:
    """Finds where a step of the loop ends: after the last of its optimizers has stepped.

    Which one is the last is known once one of them steps for the second time; until then a step is
    looked at after each of them, and only the last look is written.

    Args:
        parts: the program; steps of optimizers that hold none of its parameters do not count.
        look: looks at the program now, given the loss of the step; its result writes what it saw.
        ending: the optimizer that ends a step, where that is known.

    Attributes:
        evaluations: calls of modules without gradients since it was last set to 0.
        loads: calls of ``load_state_dict`` of the model or a part of it since then.
        called: called when a module was, with gradients.
        computed: called when gradients are about to be computed.
        strange: steps of optimizers that are not among the parts, and move the model's parameters.
    """

    def __init__(
        self,
        parts: Parts,
        look: Callable[[float | None], Write | None],
        ending: Optimizer | None = None,
    ) -> None:
        self.evaluations = self.loads = self.strange = 0
        self._modules = frozenset(parts.model.modules())
        self._mine = {id(one) for one in parts.optimizers}
        self._held = {id(parameter) for parameter in parts.model.parameters()}
        self._look = look
        self._round: dict[int, None] = {}
        self._last: int | None = None if ending is None else id(ending)
        self._write: Write | None = None
        self._loss: Tensor | None = None
        self._unscaled: tuple[Tensor, Tensor] | None = None
        self.computed: Callable[[], object] = lambda: None
        self.called: Callable[[], object] = lambda: None

    @property
    def ending(self) -> int | None:
        """Id of the optimizer that ends a step, once that is known."""
        return self._last

    def start(self) -> None:
        """Begin to listen."""
        INSTRUMENT.attach(self)

    def stop(self) -> None:
        """Stop listening; forget a step that was not written yet."""
        INSTRUMENT.detach(self)
        self._write = self._loss = self._unscaled = None

    def flush(self) -> None:
        """Write the step that is waiting."""
        write, self._write = self._write, None
        if write is not None:
            write()

    # ------------------------------------------------------------------ what the instrument tells
    def forward_ended(
        self, module: Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> None:
        """Count what is no training: it may draw random numbers that belong to no step."""
        if torch.is_grad_enabled():
            self.called()
        else:
            self.evaluations += 1

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """Keep the loss; of several backward passes in one step, the last one's."""
        self.computed()
        if len(roots) != 1 or roots[0].numel() != 1:
            return
        root = roots[0]
        if self._unscaled is not None and self._unscaled[1] is root:
            root = self._unscaled[0]
        self._loss = root.detach()
        self._unscaled = None

    def backward_ended(self, roots: Sequence[Tensor]) -> None:
        """Nothing follows from it."""

    def gradients_cleared(self, owner: Optimizer | Module) -> None:
        """Nothing follows from it."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Nothing follows from it."""

    def step_started(self, optimizer: Optimizer, closure: bool) -> None:
        """Write the step that is over, if this begins another one."""
        if self._write is None or not self._counts(optimizer):
            return
        if id(optimizer) in self._round:
            self._last = next(reversed(self._round))
            self.flush()

    def step_ended(self, optimizer: Optimizer, closure: bool) -> None:
        """Look at the program as it is now."""
        if not self._counts(optimizer):
            return
        self.strange += bool(self._mine) and id(optimizer) not in self._mine
        if self._last not in (None, id(optimizer)):
            return
        self._round.pop(id(optimizer), None)
        self._round[id(optimizer)] = None
        loss = None if self._loss is None else float(self._loss)
        self._write = self._look(loss)
        if self._last is not None:
            self.flush()

    def loss_scaled(self, loss: Tensor, scaled: Tensor) -> None:
        """Remember which loss a scaled one belongs to."""
        self._unscaled = (loss, scaled)

    def state_loaded(self, module: Module, keys: frozenset[str]) -> None:
        """Count what puts other weights into the model between two steps."""
        self.loads += module in self._modules

    def failed(self, error: Exception) -> None:
        """The instrument let go of us."""
        self._write = self._loss = self._unscaled = None

    # ------------------------------------------------------------------ private
    def _counts(self, optimizer: Optimizer) -> bool:
        return not INSTRUMENT.replaying and any(
            id(parameter) in self._held
            for group in optimizer.param_groups
            for parameter in group["params"]
        )
