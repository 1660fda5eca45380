"""How far rounding alone can move a result: the floor under every comparison.

The operands (and cotangents) are disturbed by a known relative amount and the change is scaled
down to the unit roundoff. An ill-conditioned operator, or a gradient that is zero by cancellation,
gets the room that it needs, and no other one does.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..inputs.evaluation import Cotangents, Evaluator, OperatorRaised, Outputs
from ..inputs.operands import Operands, Values, is_differentiable
from ..wording.compare import largest

__all__ = ["disturbed", "gradient_floors", "output_floors", "random_signs"]

_DISTURBANCE = 2.0**-30
_ROOM = 64.0
"""An algorithm of a few dozen roundings may differ by this many times the effect of one."""


_NOISE = 8.0
"""A result may differ by this many times what a few units in the last place change."""


def disturbed(
    tensors: Sequence[torch.Tensor], relative: float, generator: torch.Generator
) -> Values:
    """Return copies whose elements are changed by ``relative``, each up or down at random."""
    return tuple(x.detach() * (1 + relative * random_signs(x, generator)) for x in tensors)


def output_floors(
    evaluator: Evaluator,
    operands: Operands,
    outputs: Outputs,
    generator: torch.Generator,
    unit: float = 2.0**-52,
) -> list[float]:
    """Return, per tensor of ``outputs``, the change that rounding of the operands may cause."""
    floors = [_ROOM * unit * largest(old) for old in outputs.tensors]
    for relative, weight in _probes(unit):
        points = disturbed(operands.originals(), relative, generator)
        try:
            with torch.no_grad():
                moved = evaluator.forward(points, operands=operands, stage="forward nearby").tensors
        except OperatorRaised:
            continue  # beyond the operator's domain
        pairs = zip(moved, outputs.tensors, strict=True)
        floors = [
            floor + weight * _change(*pair) for floor, pair in zip(floors, pairs, strict=True)
        ]
    return floors


def gradient_floors(
    evaluator: Evaluator,
    operands: Operands,
    cotangents: Cotangents,
    generator: torch.Generator,
    unit: float = 2.0**-52,
) -> list[float]:
    """Return, per differentiable operand, the change of its gradient that rounding may cause."""
    values = operands.values()
    before = _gradients(evaluator, operands, values, cotangents)
    floors = [_ROOM * unit * largest(old) for old in before]
    for relative, weight in _probes(unit):
        moved = tuple(x.requires_grad_() for x in disturbed(values, relative, generator))
        shaken = disturbed(cotangents, relative, generator)
        try:
            after = _gradients(evaluator, operands, moved, shaken)
        except OperatorRaised:
            continue  # beyond the operator's domain
        pairs = zip(after, before, strict=True)
        floors = [
            floor + weight * _change(*pair) for floor, pair in zip(floors, pairs, strict=True)
        ]
    return floors


def _probes(unit: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return disturbances with their weights.

    A large one measures the conditioning; a few units in the last place measure the noise of a
    result that is nothing but rounding, as a gradient that cancels to zero.
    """
    return (_DISTURBANCE, _ROOM * unit / _DISTURBANCE), (4 * unit, _NOISE)


def _gradients(
    evaluator: Evaluator, operands: Operands, values: Values, cotangents: Cotangents
) -> tuple[torch.Tensor | None, ...]:
    outputs = evaluator.forward(values, operands=operands, stage="forward nearby")
    return evaluator.vjp(outputs, values, cotangents)


def _change(new: torch.Tensor | None, old: torch.Tensor | None) -> float:
    if new is None or old is None or new.shape != old.shape or not is_differentiable(new):
        return 0.0
    return largest(new.detach() - old.detach())


def random_signs(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw +1 and -1, in the shape and real dtype of ``tensor``."""
    flips = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.int8)
    dtype = tensor.real.dtype if tensor.is_complex() else tensor.dtype
    return (flips * 2 - 1).to(dtype=dtype, device=tensor.device)
