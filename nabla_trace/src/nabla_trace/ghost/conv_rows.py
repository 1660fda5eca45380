"""Per-sample gradients of convolutions of one to three dimensions, transposed ones included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from .call import Call, Function
from .contribution import Contribution, LayerRule, common_dtype
from .sources import DenseRows, RowSource

__all__ = ["CONVOLUTIONS"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Geometry:
    """Numbers of a convolution, one per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    transposed: bool


@dataclass(frozen=True, slots=True)
class _UnfoldedRows:
    """Rows of an ungrouped two-dimensional convolution: output gradient times image patches.

    Attributes:
        images: shape ``[N, r, C, H, W]``, padded; ``r`` frames per sample.
        grads: shape ``[N, r, O, H', W']``.
        geometry: of the convolution.
        budget: elements that the patches of some samples may have.
    """

    images: Tensor
    grads: Tensor
    geometry: _Geometry
    budget: int

    @property
    def samples(self) -> int:
        """See :class:`RowSource`."""
        return self.images.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """See :class:`RowSource`."""
        return (self.grads.shape[2], self.images.shape[2], *self.geometry.kernel)

    def block(self, low: int, high: int) -> Tensor:
        """See :class:`RowSource`."""
        frames, places = self.images.shape[1], self.grads[0, 0, 0].numel()
        patch = prod(self.shape[1:])
        step = max(1, self.budget // max(1, frames * patch * places))
        parts = []
        for first in range(0, self.samples, step):
            images = self.images[first : first + step]
            patches = _unfold(images.flatten(0, 1), self.geometry)
            grads = self.grads[first : first + step, :, low:high].flatten(0, 1).flatten(2)
            rows = torch.bmm(grads, patches.mT).reshape(images.shape[0], frames, -1)
            parts.append(rows[:, 0] if frames == 1 else rows.sum(1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def shortcut(self, pairs: bool, budget: int) -> Tensor | None:
        """See :class:`RowSource`."""
        return None


def _unfold(images: Tensor, geometry: _Geometry) -> Tensor:
    if prod(geometry.kernel) == 1 and prod(geometry.stride) == 1 and not sum(geometry.padding):
        return images.flatten(2)
    return F.unfold(images, geometry.kernel, geometry.dilation, geometry.padding, geometry.stride)


def _grouped_rows(images: Tensor, grads: Tensor, weight: Tensor, geometry: _Geometry) -> Tensor:
    """Return rows ``[N, *weight]``: the samples become groups of one convolution.

    Source: the grouping trick of Rochette et al. 2019 (arXiv 1912.06015).
    """
    samples = images.shape[0]
    backward = torch.ops.aten.convolution_backward
    _, rows, _ = backward(
        grads.transpose(0, 1).flatten(1, 2),
        images.transpose(0, 1).flatten(1, 2),
        weight.new_empty((samples * weight.shape[0], *weight.shape[1:])).to(images.dtype),
        None,
        geometry.stride,
        geometry.padding,
        geometry.dilation,
        geometry.transposed,
        geometry.output_padding,
        geometry.groups * samples,
        (False, True, False),
    )
    found: Tensor = rows.reshape(samples, *weight.shape)
    return found


def _convolution(dims: int, transposed: bool) -> LayerRule:
    def rule(call: Call, grad: Tensor, budget: int) -> Iterator[Contribution] | None:
        images, layout, out = call.arg(0, "input"), call.layout(0, "input"), call.outs[0].layout
        if not isinstance(images, Tensor) or layout is None or out is None:
            return None
        if images.dim() != dims + 2 or layout.dim != 0 or out.dim != 0:
            return None
        weight, given = call.origin(1, "weight"), call.arg(1, "weight")
        if not isinstance(given, Tensor):
            return None
        dtype = common_dtype(images, grad)
        wide = grad.to(dtype)
        found = []
        if weight is not None:
            geometry = _geometry(call, given, transposed)
            images = _padded(call, images, geometry).to(dtype)
            spread = layout.spread(images, call.samples), out.spread(wide, call.samples)
            found.append(Contribution(weight, _rows(spread, given, geometry, budget)))
        bias = call.origin(2, "bias")
        if bias is not None:
            spread_grad = out.spread(wide, call.samples)
            axes = (1, *range(3, spread_grad.dim()))
            found.append(Contribution(bias, DenseRows(spread_grad.sum(axes))))
        return iter(found)

    return rule


def _rows(
    spread: tuple[Tensor, Tensor], weight: Tensor, geometry: _Geometry, budget: int
) -> RowSource:
    images, grads = spread
    plain = geometry.groups == 1 and not geometry.transposed
    if plain and len(geometry.kernel) == 2:
        return _UnfoldedRows(images, grads, geometry, budget)
    return DenseRows(_grouped_rows(images, grads, weight, geometry))


def _geometry(call: Call, weight: Tensor, transposed: bool) -> _Geometry:
    dims = weight.dim() - 2
    padding = call.arg(4, "padding")
    groups = call.arg(6, "groups")
    dilation = call.arg(7 if transposed else 5, "dilation")
    return _Geometry(
        kernel=tuple(weight.shape[2:]),
        stride=_per_axis(call.arg(3, "stride"), dims, 1),
        padding=(0,) * dims if isinstance(padding, str) else _per_axis(padding, dims, 0),
        dilation=_per_axis(dilation, dims, 1),
        output_padding=_per_axis(call.arg(5, "output_padding") if transposed else 0, dims, 0),
        groups=groups if isinstance(groups, int) else 1,
        transposed=transposed,
    )


def _per_axis(value: object, dims: int, default: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * dims
    if isinstance(value, (list, tuple)) and value:
        numbers = tuple(int(part) for part in value)
        return numbers * dims if len(numbers) == 1 else numbers
    return (default,) * dims


def _padded(call: Call, images: Tensor, geometry: _Geometry) -> Tensor:
    """Pad for ``padding="same"``, which may need one more entry at the far end."""
    if call.arg(4, "padding") != "same":
        return images
    sides: list[int] = []
    for kernel, dilation in zip(
        reversed(geometry.kernel), reversed(geometry.dilation), strict=True
    ):
        total = dilation * (kernel - 1)
        sides += [total // 2, total - total // 2]
    return F.pad(images, sides)


CONVOLUTIONS: dict[Function, LayerRule] = {
    torch.conv1d: _convolution(1, False),
    torch.conv2d: _convolution(2, False),
    torch.conv3d: _convolution(3, False),
    torch.conv_transpose1d: _convolution(1, True),
    torch.conv_transpose2d: _convolution(2, True),
    torch.conv_transpose3d: _convolution(3, True),
}
"""Function → rule. ``F.conv2d`` and its siblings are these functions."""
