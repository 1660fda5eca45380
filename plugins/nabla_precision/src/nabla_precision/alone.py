"""Runs one module alone, on what it was given in the reference pass, in another dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import Module

from .accumulating import Accumulating, unwatched
from .calls import Frame, answering
from .restoring import set_device_states
from .tree import dense, mapped, tensors_in

__all__ = ["Alone", "Cast", "Cotangents", "Leaf", "call_with", "own_parameters", "run_alone"]

Cotangents = Mapping[int, Tensor]
"""Gradient of the loss by the position among the results."""

_SEED = 20_11
_FEW = 64
_WIDE_BITS = 32


class Cast:
    """Turns tensors and the state of modules into one dtype; parameters once.

    Args:
        dtype: of floating-point tensors.
        through: round to this dtype on the way.
    """

    def __init__(self, dtype: torch.dtype, through: torch.dtype | None = None) -> None:
        self.dtype = dtype
        self._through = dtype if through is None else through
        self._parameters: dict[int, Tensor] = {}
        wide = torch.finfo(dtype).bits >= _WIDE_BITS
        self.mode = None if wide else Accumulating(dtype)

    def __call__(self, tensor: Tensor) -> Tensor:
        """Return a detached tensor."""
        return tensor.detach().to(self._through).to(self.dtype)

    def parameter(self, parameter: Tensor) -> Tensor:
        """Return the one leaf that stands for ``parameter``, which must stay alive."""
        known = self._parameters.get(id(parameter))
        if known is None:
            known = self(parameter) if parameter.is_floating_point() else parameter.detach()
            if known.dtype is parameter.dtype:
                known = known.clone()  # a module may write into it, as a table with max_norm does
            known.requires_grad_(parameter.requires_grad)
            self._parameters[id(parameter)] = known
            if self.mode is not None:
                self.mode.remember(known)
        return known

    def state(self, module: Module) -> dict[str, Tensor]:
        """Return parameters and copies of buffers, as :func:`call_with` wants them.

        Each place of a tied parameter is named; each module that is held in several places once.
        """
        named: dict[str, Tensor] = {}
        for path, part in module.named_modules():
            prefix = f"{path}." if path else ""
            for name, parameter in part._parameters.items():
                if parameter is not None:
                    named[prefix + name] = self.parameter(parameter)
            for name, buffer in part.named_buffers(recurse=False) if part._buffers else ():
                cast = self(buffer).clone() if buffer.is_floating_point() else buffer.clone()
                named[prefix + name] = cast
        return named


def call_with(
    module: Module,
    state: dict[str, Tensor],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Call a module with other parameters and buffers.

    torch ties weights by itself only in a way that leaves a module which is held in several places
    with the wrong ones, so that the state names every place.
    """
    result: object = functional_call(module, state, args, kwargs, tie_weights=False)
    return result


@dataclass(frozen=True, slots=True)
class Leaf:
    """Something that a gradient is taken for.

    Attributes:
        tensor: the input, the answer of another module, or the parameter.
        parameter: ``id`` of the parameter of the model; 0 for what is none.
        exact: its gradient in the reference pass, where that belongs to this call alone.
    """

    tensor: Tensor
    parameter: int = 0
    exact: Tensor | None = None


@dataclass(slots=True)
class Alone:
    """What one module returned and passed back, run alone.

    Attributes:
        outputs: what it gave to other modules, then what it returned, detached.
        leaves: what gradients were taken for.
        grads: gradient of each leaf, ``None`` where there is none.
        natural: norm of each gradient without cancellation between samples, where asked for.
        operations: operations of the forward pass that computed numbers, where they were counted.
    """

    outputs: list[Tensor]
    leaves: list[Leaf] = field(default_factory=list)
    grads: Sequence[Tensor | None] = ()
    natural: list[float] = field(default_factory=list)
    operations: int = -1


def run_alone(
    frame: Frame, cast: Cast, cotangents: Cotangents, *, with_natural: bool = False
) -> Alone:
    """Run the module of ``frame`` once; calls of other modules are answered from the record.

    Args:
        frame: a call in the reference pass.
        cast: dtype to run in.
        cotangents: empty for the forward pass alone.
        with_natural: also take gradients of random signs, which do not cancel.

    Raises:
        NotRepeatable: the module does not do the same again.
    """
    leaves: list[Leaf] = []
    wanted = bool(cotangents)
    if frame.random is not None:
        set_device_states(frame.random)
    args, kwargs = mapped(frame.given, _input(frame, cast, leaves if wanted else None))
    state = cast.state(frame.module)
    mode = cast.mode
    before = 0 if mode is None else mode.operations
    scaled = {position: cast(cotangent) for position, cotangent in cotangents.items()}
    with torch.set_grad_enabled(wanted), nullcontext() if mode is None else mode:
        with answering(frame, _answer(frame, cast, leaves if wanted else None)) as passed:
            output = call_with(frame.module, state, args, kwargs)
        outputs = [*passed, *tensors_in(output)]
        with unwatched():
            alone = Alone(outputs=[tensor.detach() for tensor in outputs], leaves=leaves)
        alone.operations = -1 if mode is None else mode.operations - before
        if wanted:
            leaves += own_parameters(frame, cast)
            alone.grads = _gradients(outputs, leaves, scaled, keep=with_natural)
            if with_natural:
                alone.natural = _natural_norms(outputs, leaves, scaled)
    return alone


def own_parameters(frame: Frame, cast: Cast) -> list[Leaf]:
    """Return the parameters that no called module has, and that are trained."""
    theirs = {id(p) for child in frame.children for p in child.module.parameters()}
    return [
        Leaf(cast.parameter(parameter), parameter=id(parameter))
        for parameter in frame.module.parameters()
        if id(parameter) not in theirs and parameter.requires_grad
    ]


def _input(frame: Frame, cast: Cast, leaves: list[Leaf] | None) -> Callable[[Tensor], Tensor]:
    """Return what makes an input of an argument: of one object always the same one."""
    positions = iter(range(len(frame.inputs_need_grad)))
    known: dict[int, Tensor] = {}

    def change(tensor: Tensor) -> Tensor:
        position = next(positions)
        if id(tensor) in known:
            return known[id(tensor)]
        changed = cast(tensor)
        if leaves is not None and frame.inputs_need_grad[position]:
            changed = changed.view_as(changed).requires_grad_()
            leaves.append(Leaf(changed, exact=frame.input_grads.get(position)))
        known[id(tensor)] = changed.clone() if frame.overwrites else changed
        return known[id(tensor)]

    return change


def _answer(frame: Frame, cast: Cast, leaves: list[Leaf] | None) -> Callable[[Tensor], Tensor]:
    """Return what makes an answer of what another module returned."""
    exact = _answers_grads(frame)

    def change(tensor: Tensor) -> Tensor:
        with torch.no_grad(), unwatched():
            changed = cast(tensor)
        grad = next(exact, None)
        if leaves is None or grad is None:
            return changed.clone()
        leaf = changed.view_as(changed).requires_grad_()
        leaves.append(Leaf(leaf, exact=grad))
        return leaf.clone()  # a module may go on in place on what another one returned

    return change


def _answers_grads(frame: Frame) -> Iterator[Tensor | None]:
    for child in frame.children:
        for position in range(len(tensors_in(child.output))):
            yield child.grads.get(position)


def _gradients(
    outputs: Sequence[Tensor], leaves: Sequence[Leaf], cotangents: Cotangents, *, keep: bool
) -> Sequence[Tensor | None]:
    used = [
        (outputs[position], cotangent)
        for position, cotangent in cotangents.items()
        if position < len(outputs) and outputs[position].requires_grad
    ]
    if not used or not leaves:
        return [None] * len(leaves)
    found = torch.autograd.grad(
        [output for output, _ in used],
        [leaf.tensor for leaf in leaves],
        [cotangent.to(output.dtype) for output, cotangent in used],
        retain_graph=keep,
        allow_unused=True,
    )
    with unwatched():
        return [None if grad is None else dense(grad) for grad in found]


def _natural_norms(
    outputs: Sequence[Tensor], leaves: Sequence[Leaf], cotangents: Cotangents
) -> list[float]:
    """Norms of gradients that do not cancel: the cotangent has the same size and random signs."""
    generator = torch.Generator().manual_seed(_SEED)
    draws = 4 if any(leaf.tensor.numel() < _FEW for leaf in leaves) else 1
    squares = [0.0] * len(leaves)
    for _ in range(draws):
        signed = {p: c * _signs(c, generator) for p, c in cotangents.items()}
        for index, grad in enumerate(_gradients(outputs, leaves, signed, keep=True)):
            if grad is not None:
                squares[index] += float(torch.linalg.vector_norm(grad)) ** 2 / draws
    return [square**0.5 for square in squares]


def _signs(like: Tensor, generator: torch.Generator) -> Tensor:
    bits = torch.randint(0, 2, tuple(like.shape), generator=generator)
    return (2 * bits - 1).to(device=like.device, dtype=like.dtype)
