"""The operator that a campaign tries: its truth, its arguments, and one call with its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from ..inputs.callee import owning_module
from ..inputs.layouts import relayout
from ..inputs.operands import is_differentiable
from ..inputs.tree import flatten
from ..truth.products import normal_like
from .recipe import Case

__all__ = ["Subject", "TrialCall", "call", "draw_cotangents", "preserved"]

Function = Callable[..., object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is called in every trial.

    Attributes:
        candidate: the operator under test.
        reference: the operator that defines the truth, if any.
        arguments: positional arguments; ``None`` at the places in ``slots`` is replaced by tensors.
        slots: positions of the drawn tensors.
        kwargs: keyword arguments.
        names: how messages call the drawn tensors.
    """

    candidate: Function
    reference: Function | None
    arguments: tuple[object, ...]
    slots: tuple[int, ...]
    kwargs: Mapping[str, object] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def filled(self, tensors: Sequence[torch.Tensor]) -> list[object]:
        """Return the positional arguments with ``tensors`` in their slots."""
        filled = list(self.arguments)
        for slot, tensor in zip(self.slots, tensors, strict=True):
            filled[slot] = tensor
        return filled


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCall:
    """One forward call and its backward.

    Attributes:
        outputs: tensors that were returned, in order.
        gradients: per drawn tensor that requires a gradient; ``None`` where nothing arrived.
        error: exception of the operator, if it raised.
        stage: ``forward`` or ``backward``: where it raised.
    """

    outputs: tuple[torch.Tensor, ...] = ()
    gradients: tuple[torch.Tensor | None, ...] = ()
    error: Exception | SystemExit | None = None
    stage: str = ""

    @property
    def refusal(self) -> str:
        """Type and first line of the exception."""
        first = (str(self.error).strip().splitlines() or [""])[0]
        return f"{type(self.error).__name__}: {first[:120]}".rstrip(": ")


def call(
    subject: Subject,
    function: Function,
    tensors: Sequence[torch.Tensor],
    case: Case,
    cotangents: Sequence[torch.Tensor] | None = None,
) -> TrialCall:
    """Call ``function`` and pull cotangents back.

    Args:
        subject: gives the other arguments.
        function: candidate or reference.
        tensors: the drawn tensors, handed over as they are.
        case: gives the seed of the global generator, and of the cotangents.
        cotangents: one per output, instead of those of the case. Those of outputs that carry no
            gradient are ignored.
    """
    torch.default_generator.manual_seed(case.seed)  # torch.manual_seed() costs 0.2 ms
    try:
        returned = function(*subject.filled(tensors), **subject.kwargs)
    except (Exception, SystemExit) as error:
        return TrialCall(error=error, stage="forward")
    outputs = _tensors_in(returned)
    live = [index for index, output in enumerate(outputs) if output.requires_grad]
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    if not live or not wanted:
        return TrialCall(outputs=outputs, gradients=(None,) * len(wanted))
    used = draw_cotangents(outputs, case) if cotangents is None else cotangents
    try:
        gradients = torch.autograd.grad(
            [outputs[index] for index in live],
            wanted,
            [used[index] for index in live],
            allow_unused=True,
        )
    except (Exception, SystemExit) as error:
        return TrialCall(outputs=outputs, error=error, stage="backward")
    return TrialCall(outputs=outputs, gradients=gradients)


def draw_cotangents(outputs: Sequence[torch.Tensor], case: Case) -> tuple[torch.Tensor, ...]:
    """Draw a signed random gradient for every floating output, in the memory that the case says."""
    generator = torch.Generator().manual_seed(case.seed + 7919)
    drawn = []
    for output in outputs:
        if not is_differentiable(output):
            drawn.append(output)
            continue
        dense = normal_like(output.detach(), generator)
        plain = case.cotangent == "contiguous"
        drawn.append(dense if plain else relayout(dense, case.cotangent))
    return tuple(drawn)


@contextmanager
def preserved(*functions: Function | None) -> Iterator[None]:
    """Put the buffers of modules back afterwards: a running mean must not learn from trials."""
    modules = [owning_module(function) for function in functions if function is not None]
    buffers = [b for module in modules if module is not None for b in module.buffers()]
    kept = [buffer.detach().clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, kept, strict=True):
                buffer.copy_(value)


def _tensors_in(returned: object) -> tuple[torch.Tensor, ...]:
    if isinstance(returned, torch.Tensor):
        return (returned,)
    leaves = flatten(returned, "output").leaves
    return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
