"""Derivatives that a loop without an optimizer takes by itself, with ``torch.autograd.grad``.

Nothing is written into a gradient and no step follows, so that what the numbers lead to is not seen
at once. A bad pass is executed again at its end, before the weights change, and is held: a pass
after which all went on with finite numbers at the same line was handled by the program, as samplers
reject a diverging proposal; what was bad in one pass only, of a line that did not run again, was
for a log line. What the next passes inherit, or what the run ends with, is the fault.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..facts import NumberFacts, OptimizerFacts
from ..origin.nested import leaves
from ..taps.backward import in_backward
from ..taps.instrument import INSTRUMENT
from ..taps.place import Line, user_line
from ..taps.transforms import in_transform
from .exact import fault_in
from .signals import can_read, is_ordinary, norms, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..facts import TensorFault
    from ..origin.findings import Findings

__all__ = ["BarePass", "BarePasses"]

_MAX_FOUND = 8
_CREATE_GRAPH, _INPUTS = 2, 3  # position among the engine's arguments after the outputs


@dataclass(slots=True, kw_only=True)
class BarePass:
    """A bad pass, and what came after it.

    Attributes:
        step: how many passes there were at its line before it.
        line: the user's line.
        numbers: what was not finite.
        certain: the loss is NaN and all derivatives are zero: it lost its terms, and no program
            asks for that.
        inherited: the losses of later passes were bad, too.
        alone: a loss was finite afterwards.
        recovered: a later pass at its own line was finite.
    """

    step: int
    line: Line | None
    numbers: NumberFacts
    certain: bool = False
    inherited: bool = False
    alone: bool = False
    recovered: bool = False

    @property
    def is_handled(self) -> bool:
        """Whether nothing came of it."""
        return not self.certain and (self.recovered or (self.alone and not self.inherited))


class BarePasses:
    """Finds the first bad one of them.

    Attributes:
        found: those that are settled.
        follows: the last pass that wrote gradients was bad: what is bad now follows from it.

    Args:
        has_optimizer: whether an optimizer trains here, whose steps are judged, or is going to
            train one of the tensors that it is given.
        guarded: does work that is put off, such that an error in it is not the program's.
    """

    def __init__(
        self,
        has_optimizer: Callable[[Sequence[Tensor]], bool],
        guarded: Callable[[Callable[[], None]], None],
    ) -> None:
        self.found: list[BarePass] = []
        self.follows = False
        self._has_optimizer = has_optimizer
        self._guarded = guarded
        self._counts: dict[Line | None, int] = {}
        self._held: BarePass | None = None
        self._explained = 0

    def derived(self, outputs: Sequence[Tensor], args: tuple[object, ...], results: object) -> None:
        """Judge derivatives that the user's own code has taken, once the call is noted.

        What has a graph of its own is part of a loss, and what a model takes inside of its forward
        pass is its output: both are judged where they lead to.
        """
        if in_transform() or in_backward() or len(args) <= _INPUTS or args[_CREATE_GRAPH]:
            return
        inputs = _tensors(args[_INPUTS])
        if self._has_optimizer(inputs):
            INSTRUMENT.tell_derivatives(None)
            self._held = None
            return
        keeper = INSTRUMENT.keeper
        kept = keeper.threads.kept if keeper.enabled else None
        if kept is None or not kept.depth:
            judge = partial(self._judge, tuple(outputs), inputs, results)
            if kept is not None and kept.recorder.handling:
                kept.recorder.after = partial(self._guarded, judge)
            else:
                keeper.unnoted(judge)

    def inherits(self, losses: Sequence[Tensor]) -> bool:
        """Whether a bad pass follows from the one that is held.

        Args:
            losses: its own, as far as they can be read.
        """
        held = self._held
        if held is None:
            return False
        if losses and _are_finite(losses):
            held.alone = True  # what was bad did not get into the weights
        else:
            held.inherited = True
        return True

    def end(self) -> None:
        """The run is over: what it left behind is settled."""
        self._settle()
        if self._has_optimizer(()):
            self.found.clear()

    def _judge(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], results: object) -> None:
        line = user_line()
        index = self._counts.get(line, 0)
        self._counts[line] = index + 1
        losses, grads = _readable(outputs), _readable(results)
        if not _are_finite((*losses, *grads)):
            self._note_bad(index, line, losses, grads, _weights(inputs))
        elif self._held is not None:
            self._note_good(self._held, line)
        INSTRUMENT.keeper.pass_ends()

    def _note_good(self, held: BarePass, line: Line | None) -> None:
        held.alone = True
        if line == held.line:
            held.recovered = True
            self._settle()

    def _note_bad(
        self,
        index: int,
        line: Line | None,
        losses: Sequence[Tensor],
        grads: Sequence[Tensor],
        weights: Sequence[tuple[str, Tensor]],
    ) -> None:
        if self.inherits(losses) or self.follows:
            return
        loss = float(losses[0]) if len(losses) == 1 and losses[0].numel() == 1 else None
        faults = _faults(grads)
        numbers = NumberFacts(
            optimizer=OptimizerFacts(name="the update by hand"),
            loss=loss,
            loss_at=None if line is None else line.place,
            gradients=faults,
            gradient_count=len(grads),
            findings=self._again(weights),
        )
        certain = loss is not None and math.isnan(loss) and not any(map(_is_set, grads))
        self._held = BarePass(step=index, line=line, numbers=numbers, certain=certain)

    def _settle(self) -> None:
        held, self._held = self._held, None
        if held is not None and (len(self.found) < _MAX_FOUND or not held.is_handled):
            self.found.append(held)

    def _again(self, weights: Sequence[tuple[str, Tensor]]) -> Findings | None:
        """Execute the pass again, a few times per run at most."""
        from ..origin.replay import execute_again

        keeper = INSTRUMENT.keeper
        if not keeper.enabled or self._explained >= _MAX_FOUND:
            return None
        self._explained += 1
        return execute_again(keeper.kept, weights, keeper.kept.since, ends_in="derivatives")


def _readable(values: object) -> list[Tensor]:
    """The tensors whose values can be read."""
    tensors = [tensor.detach() for tensor in leaves(values)]
    return [tensor for tensor in tensors if is_ordinary(tensor) and can_read(tensor)]


def _are_finite(tensors: Sequence[Tensor]) -> bool:
    with torch.no_grad():
        measured = [norm for norm in norms(tensors) if norm is not None]
        return math.isfinite(sum(read(measured)))


def _is_set(grad: Tensor) -> bool:
    """Whether any value differs from zero; NaN does."""
    return bool(grad.count_nonzero())


def _tensors(inputs: object) -> list[Tensor]:
    found = inputs if isinstance(inputs, (tuple, list)) else ()
    return [value for value in found if isinstance(value, Tensor)]


def _weights(inputs: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    """What the derivatives are taken by, where it is no result of something else."""
    return [(f"tensor {index}", value) for index, value in enumerate(inputs) if value.is_leaf]


def _faults(grads: Sequence[Tensor]) -> tuple[TensorFault, ...]:
    faults = (fault_in(f"derivative {index}", grad) for index, grad in enumerate(grads))
    return tuple(fault for fault in faults if fault is not None)
