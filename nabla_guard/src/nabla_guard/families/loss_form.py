"""How a loss was averaged and scaled, read off its graph.

A loss that backward starts from is a sum over units (samples, tokens), divided by the number of
units where it is a mean, and multiplied by constants. With these numbers the gradient of the
concatenation of several batches follows from the gradients of its parts, because differentiation
is linear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.autograd.graph import Node

from .graph import RESHAPES, children, name_of, saved_int, saved_tensor

__all__ = ["LossForm", "form_of"]

_MAX_DEPTH = 24
_MEAN = 1
_SUM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LossForm:
    """One scalar loss.

    Attributes:
        kind: names of the operators from the root down to where it is reduced.
        scale: product of the constants that multiply it; a loss scale of a scaler is left out.
        units: number of units that it is a mean of; ``None`` where it is a sum or not known.
        is_mean: whether the loss function itself takes the mean.
    """

    kind: tuple[str, ...]
    scale: float = 1.0
    units: float | None = None
    is_mean: bool = False


def form_of(root: Tensor, loss_scale: float = 1.0) -> LossForm | None:
    """Return the form of the loss ``root``, or ``None`` where its graph does not show it.

    Args:
        root: a tensor with one element whose graph has not been freed.
        loss_scale: scale of a gradient scaler; the factor of that size is not part of the form.
    """
    if root.grad_fn is None or root.numel() != 1:
        return None
    return _form(root.grad_fn, loss_scale, 0)


def _form(node: Node, loss_scale: float, depth: int) -> LossForm | None:
    name = name_of(node)
    if depth > _MAX_DEPTH:
        return None
    reduced = _reduction(node, name)
    if reduced is not None:
        return reduced
    below = children(node)
    if name in ("Add", "Sub"):
        return _first(below, loss_scale, depth)
    if len(below) != 1:
        return None
    inner = _form(below[0], loss_scale, depth + 1)
    if inner is None or name in RESHAPES or name == "Neg":
        return inner
    factor = _factor(node, name)
    return None if factor is None else _scaled(inner, name, factor, loss_scale)


def _scaled(inner: LossForm, name: str, factor: Tensor, loss_scale: float) -> LossForm | None:
    value = float(factor)
    if value == 0.0:
        return None
    if name == "Mul" and value == loss_scale and factor.dtype is torch.float32:
        return inner
    divides = name == "Div"
    kind = (name, *inner.kind)
    if divides and not inner.is_mean and inner.units is None:
        return replace(inner, kind=kind, units=value)
    scale = inner.scale / value if divides else inner.scale * value
    return replace(inner, kind=kind, scale=scale)


def _factor(node: Node, name: str) -> Tensor | None:
    """The number by which a loss is multiplied or divided."""
    if name not in ("Mul", "Div"):
        return None
    other = getattr(node, "_saved_other", None) if name_of(node) else None
    if isinstance(other, (int, float)):
        return torch.tensor(other, dtype=torch.float64)
    found = saved_tensor(node, "other")
    if found is None:
        found = saved_tensor(node, "self")
    return found.detach() if found is not None and found.numel() == 1 else None


def _first(below: list[Node], loss_scale: float, depth: int) -> LossForm | None:
    """Of several terms, the one with the largest scale that is a mean stands for all."""
    forms = [_form(node, loss_scale, depth + 1) for node in below]
    known = [form for form in forms if form is not None]
    if not known:
        return None
    chosen = max(known, key=lambda form: (form.is_mean, abs(form.scale)))
    return replace(chosen, kind=("Add", *chosen.kind))


def _reduction(node: Node, name: str) -> LossForm | None:
    if name == "Mean":
        count = saved_int(node, "self_sym_numel")
        return LossForm(kind=(name,), units=float(count or 1), is_mean=True)
    if name == "Sum":
        return LossForm(kind=(name,))
    reduction = saved_int(node, "reduction")
    if reduction == _SUM:
        return LossForm(kind=(name,))
    if reduction != _MEAN:
        return None
    total = saved_tensor(node, "total_weight")
    if total is not None:
        return LossForm(kind=(name,), units=float(total), is_mean=True)
    target = saved_tensor(node, "target")
    return None if target is None else LossForm(kind=(name,), units=target.numel(), is_mean=True)
