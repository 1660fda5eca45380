"""Per-sample gradients of the common layers, from what went in and what comes back.

``g`` is always the gradient of the output. Shapes: ``N`` samples, ``T`` positions per sample
(sequence, frames, pixels), ``C`` channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .call import Call, Function, Origin
from .contribution import Contribution, LayerRule, common_dtype, rows_of, sum_to
from .conv_rows import CONVOLUTIONS
from .sources import DenseRows, OuterRows, Products, TokenRows

__all__ = ["LAYER_RULES", "fixed_embedding"]


def _sequences(call: Call, position: int, name: str, grad: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return input and gradient as ``[N, T, features]``."""
    given, layout = call.arg(position, name), call.layout(position, name)
    out = call.outs[0].layout
    if not isinstance(given, Tensor) or call.origin(position, name):
        return None
    if layout is None or out is None or layout.dim == given.dim() - 1 or out.dim == grad.dim() - 1:
        return None
    dtype = common_dtype(given, grad)
    left = layout.spread(given, call.samples).to(dtype)
    right = out.spread(grad, call.samples).to(dtype)
    if left.dim() == 3 == right.dim():
        return left, right
    return (
        left.reshape(call.samples, -1, given.shape[-1]),
        right.reshape(call.samples, -1, grad.shape[-1]),
    )


def linear(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
    """``x W^T + b``."""
    pair = _sequences(call, 0, "input", grad)
    weight, bias = call.origin(1, "weight"), call.origin(2, "bias")
    if pair is None or (weight is not None and weight.tensor.dim() != 2):
        return None
    products = None
    if weight is not None and bias is not None and pair[1].shape[1] == 1:
        products = Products(pair[1][:, 0])
    return _linear(weight, bias, OuterRows(pair[1], pair[0], products), pair[1])


def matmul(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
    """``x W``."""
    pair, weight = _sequences(call, 0, "input", grad), call.origin(1, "other")
    if pair is None or weight is None or weight.tensor.dim() != 2:
        return None
    return _linear(weight, None, OuterRows(pair[0], pair[1]), pair[1])


def addmm(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
    """``b + x W``."""
    pair = _sequences(call, 1, "mat1", grad)
    weight, bias = call.origin(2, "mat2"), call.origin(0, "input")
    scaled = any(call.kwargs.get(name, 1) != 1 for name in ("alpha", "beta"))
    if pair is None or scaled or (bias is not None and bias.tensor.dim() != 1):
        return None
    return _linear(weight, bias, OuterRows(pair[0], pair[1]), pair[1])


def _linear(
    weight: Origin | None, bias: Origin | None, rows: OuterRows, grad: Tensor
) -> Iterator[Contribution]:
    products = rows.products
    if weight is not None:
        yield Contribution(weight, rows)
    if bias is not None:
        yield Contribution(
            bias, DenseRows(grad.sum(1) if products is None else products.rows, products)
        )


def embedding(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
    """Rows of a matrix, chosen by the batch."""
    index, weight = call.arg(0, "input"), call.origin(1, "weight")
    special = call.arg(3, "max_norm") is not None or bool(call.arg(5, "scale_grad_by_freq"))
    if weight is None or special or not isinstance(index, Tensor):
        return None
    samples = call.samples
    tokens = rows_of(index, call.layout(0, "input"), samples).reshape(samples, -1)
    values = rows_of(grad, call.outs[0].layout, samples).reshape(samples, -1, grad.shape[-1])
    return iter([_looked_up(call, weight, tokens, values)])


def fixed_embedding(call: Call, rows: Tensor) -> Contribution | None:
    """Rows of a matrix that are the same for every sample, as those of positions are.

    Args:
        call: of a function, without anything of the batch.
        rows: gradient of its result for each sample, ``[N, ...]``.

    Returns:
        ``None`` for another function, or a form of this one that is not known.
    """
    index, weight = call.arg(0, "input"), call.origin(1, "weight")
    if call.func is not F.embedding or weight is None or not isinstance(index, Tensor):
        return None
    if call.arg(3, "max_norm") is not None or bool(call.arg(5, "scale_grad_by_freq")):
        return None
    tokens = index.reshape(1, -1).expand(len(rows), -1)
    return _looked_up(call, weight, tokens, rows.reshape(len(rows), tokens.shape[1], -1))


def _looked_up(call: Call, weight: Origin, tokens: Tensor, values: Tensor) -> Contribution:
    size, padding = weight.tensor.shape[0], call.arg(2, "padding_idx")
    values = values.to(common_dtype(values))
    if isinstance(padding, int):
        values = values * (tokens != padding % size).unsqueeze(-1)
    return Contribution(weight, TokenRows(tokens, values, size))


def layer_norm(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
    """Normalised over the last axes."""
    given, shape = call.arg(0, "input"), _axes(call.arg(1, "normalized_shape"))
    eps = call.arg(4, "eps")
    if not isinstance(given, Tensor) or shape is None:
        return None
    wide = given.to(common_dtype(given, grad))
    normal = F.layer_norm(wide, shape, eps=float(eps) if isinstance(eps, float) else 1e-5)
    return _last_axes(call, normal, grad, len(shape), call.origin(3, "bias"))


def rms_norm(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
    """Scaled over the last axes."""
    given, shape = call.arg(0, "input"), _axes(call.arg(1, "normalized_shape"))
    eps = call.arg(3, "eps")
    if not isinstance(given, Tensor) or shape is None:
        return None
    wide = given.to(common_dtype(given, grad))
    chosen = float(eps) if isinstance(eps, float) else torch.finfo(given.dtype).eps
    return _last_axes(call, F.rms_norm(wide, shape, eps=chosen), grad, len(shape), None)


def _axes(shape: object) -> list[int] | None:
    if isinstance(shape, Sequence) and all(isinstance(size, int) for size in shape):
        return [int(size) for size in shape]
    return None


def _last_axes(
    call: Call, normal: Tensor, grad: Tensor, axes: int, bias: Origin | None
) -> Iterator[Contribution] | None:
    weight, layout = call.origin(2, "weight"), call.outs[0].layout
    if layout is None or layout.dim >= grad.dim() - axes:
        return None
    tail = grad.shape[grad.dim() - axes :]

    def reduced(values: Tensor) -> DenseRows:
        spread = layout.spread(values, call.samples)
        return DenseRows(spread.reshape(call.samples, -1, *tail).sum(1))

    wide = grad.to(normal.dtype)
    found = [] if weight is None else [Contribution(weight, reduced(normal * wide))]
    found += [] if bias is None else [Contribution(bias, reduced(wide))]
    return iter(found)


def group_norm(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
    """Normalised over groups of channels."""
    given, groups, eps = call.arg(0, "input"), call.arg(1, "num_groups"), call.arg(4, "eps")
    if not isinstance(given, Tensor) or not isinstance(groups, int):
        return None
    wide = given.to(common_dtype(given, grad))
    normal = F.group_norm(wide, groups, eps=float(eps) if isinstance(eps, float) else 1e-5)
    return _channels(call, normal, grad, call.origin(2, "weight"), call.origin(3, "bias"))


def batch_norm(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
    """Normalised over the batch: the rows are a decomposition of the batch gradient."""
    given = call.arg(0, "input")
    mean, variance = call.arg(1, "running_mean"), call.arg(2, "running_var")
    training, eps = bool(call.arg(5, "training")), call.arg(7, "eps")
    if not isinstance(given, Tensor):
        return None
    wide = given.to(common_dtype(given, grad))
    stats = [
        value.to(wide.dtype) if isinstance(value, Tensor) and not training else None
        for value in (mean, variance)
    ]
    epsilon = float(eps) if isinstance(eps, float) else 1e-5
    normal = F.batch_norm(wide, stats[0], stats[1], training=training, eps=epsilon)
    return _channels(call, normal, grad, call.origin(3, "weight"), call.origin(4, "bias"))


def _channels(
    call: Call, normal: Tensor, grad: Tensor, weight: Origin | None, bias: Origin | None
) -> Iterator[Contribution] | None:
    layout = call.outs[0].layout
    if layout is None or layout.dim != 0 or grad.dim() < 2:
        return None
    channels = grad.shape[1]

    def reduced(values: Tensor) -> DenseRows:
        spread = layout.spread(values, call.samples)
        return DenseRows(spread.reshape(call.samples, layout.rows, channels, -1).sum((1, 3)))

    wide = grad.to(normal.dtype)
    found = [] if weight is None else [Contribution(weight, reduced(normal * wide))]
    found += [] if bias is None else [Contribution(bias, reduced(wide))]
    return iter(found)


def add(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
    """``x + d`` with broadcasting; the values are not needed."""
    if call.kwargs.keys() - {"other", "input"}:
        return None
    spread = rows_of(grad, call.outs[0].layout, call.samples).to(common_dtype(grad))
    return _broadcast(call, dict.fromkeys(call.tracked, spread))


def multiply(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
    """``x * d`` with broadcasting, for an ``x`` of the shape of the result."""
    if call.kwargs or len(call.tracked) != 1 or len(call.args) != 2:
        return None
    ((path, _),) = call.tracked.items()
    other = call.args[1 - int(path[0])]
    layout = call.outs[0].layout
    if not isinstance(other, Tensor) or other.shape != grad.shape or layout is None:
        return None
    dtype = common_dtype(other, grad)
    return _broadcast(call, {path: layout.spread(grad.to(dtype) * other.to(dtype), call.samples)})


def expand(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
    """The same value for every sample."""
    spread = rows_of(grad, call.outs[0].layout, call.samples).to(common_dtype(grad))
    return _broadcast(call, {path: spread for path in call.tracked if path == (0,)})


def _broadcast(
    call: Call, spreads: dict[tuple[int | str, ...], Tensor]
) -> Iterator[Contribution] | None:
    found = []
    for path, spread in spreads.items():
        origin = call.tracked[path]
        if call.layouts.get(path) is not None:
            return None
        rows = sum_to(spread, tuple(origin.tensor.shape))
        if rows is None:
            return None
        found.append(Contribution(origin, DenseRows(rows)))
    return iter(found)


_BASE = torch.Tensor
LAYER_RULES: dict[Function, LayerRule] = {
    F.linear: linear,
    F.embedding: embedding,
    F.layer_norm: layer_norm,
    F.rms_norm: rms_norm,
    F.group_norm: group_norm,
    F.batch_norm: batch_norm,
    torch.addmm: addmm,
    **dict.fromkeys((torch.matmul, torch.mm, _BASE.matmul, _BASE.mm, _BASE.__matmul__), matmul),
    **dict.fromkeys((torch.add, _BASE.add, _BASE.__add__, _BASE.__radd__, _BASE.add_), add),
    **dict.fromkeys((torch.mul, _BASE.mul, _BASE.__mul__, _BASE.__rmul__), multiply),
    **dict.fromkeys((_BASE.expand, _BASE.expand_as, _BASE.repeat, torch.broadcast_to), expand),
    **CONVOLUTIONS,
}
"""Function of torch → the rule that makes rows from a call of it."""
