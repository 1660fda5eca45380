"""The numerical oracle for the cases of a campaign: one directional derivative of one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..inputs.operands import is_differentiable
from ..truth.oracle import Curve, Verdict, judge
from ..truth.products import inner, norm_of_products, steps_for
from ..truth.resolution import resolution_of
from .recipe import Case
from .subject import Function, Subject, TrialCall, call

__all__ = ["Point", "judge_call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where a derivative is taken: inputs, and the weights of the outputs."""

    tensors: Sequence[torch.Tensor]
    cotangents: Sequence[torch.Tensor]


def judge_call(
    subject: Subject,
    function: Function,
    found: TrialCall,
    case: Case,
    point: Point,
) -> Verdict | None:
    """Judge the gradients of ``found`` by differences of ``function``.

    Args:
        subject: gives the other arguments.
        function: the truth; the candidate itself when there is no reference.
        found: call whose gradients are judged.
        case: gives the seed of the global generator.
        point: tensors and cotangents in the precision of the differences.

    Returns:
        ``None`` where the dtype has no numerical derivative or nothing is differentiated.
    """
    tensors = point.tensors
    live = [tensor.detach() for tensor in tensors if tensor.requires_grad]
    resolution = resolution_of([tensor.dtype for tensor in live])
    if resolution is None or not live:
        return None
    directions = steps_for(live, torch.Generator().manual_seed(live[0].numel() + 17))
    weights = [u for u in point.cotangents if is_differentiable(u)]

    def evaluate(t: float) -> Sequence[torch.Tensor]:
        moved = iter([x + t * v for x, v in zip(live, directions, strict=True)])
        points = [next(moved) if x.requires_grad else x for x in tensors]
        with torch.no_grad():
            outputs = call(subject, function, points, case, ()).outputs
        return [y for y in outputs if is_differentiable(y)]

    centre = evaluate(0.0)
    if len(centre) != len(weights):
        return None
    wide = [
        None if g is None else g.detach().to(x.dtype)
        for g, x in zip(found.gradients, live, strict=True)
    ]
    scale = norm_of_products(wide, directions)
    curve = Curve(evaluate=evaluate, weights=weights, centre=centre)
    return judge(curve, inner(wide, directions), scale, resolution)
