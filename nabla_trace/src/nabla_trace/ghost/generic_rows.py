"""Per-sample gradients of any function: it is run again for each sample, or its graph is asked."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from math import prod

import torch
from torch import Tensor
from torch.func import vjp, vmap

from .call import Call, Path, replaced, tensors_in
from .contribution import Contribution, common_dtype
from .layout import Layout, StructureDiffers
from .sources import DenseRows

__all__ = ["generic_rows"]


def generic_rows(call: Call, budget: int) -> Iterator[Contribution]:
    """Yield the rows of every tracked argument of a call.

    Tried in turn: the function under ``vmap``, the function for one sample after the other, and the
    graph that was recorded, with the gradient of one sample at a time. Only the last is right for a
    function that draws random numbers or writes in place.

    Raises:
        StructureDiffers: an output has no axis of samples.
    """
    for out in call.outs:
        if out.grad is not None and out.layout is None:
            raise StructureDiffers(f"an output of {call.name} has no axis of samples")
    if all(out.grad is None for out in call.outs):
        return
    rows = _from_graph(call) if call.recorded else _again(call, budget)
    for path, origin in call.tracked.items():
        found = rows.get(path)
        if found is not None:
            yield Contribution(origin, DenseRows(found), call.layouts.get(path))


def _again(call: Call, budget: int) -> dict[Path, Tensor]:
    try:
        return _Rerun(call).mapped(budget)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        pass  # no batching rule, or a function that reads values
    try:
        return _Rerun(call).one_by_one()
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        if not call.edges:
            raise
        return _from_graph(call)


class _Rerun:
    """Runs the function of a call again, one sample at a time."""

    def __init__(self, call: Call) -> None:
        self._call = call
        paths = dict(tensors_in(call.args, call.kwargs))
        self._leaves = {path: paths[path] for path in call.tracked}
        self._sliced = {
            path: layout.spread(paths[path], call.samples)
            for path, layout in call.layouts.items()
            if layout is not None and path in paths
        }
        outs = [(n, out) for n, out in enumerate(call.outs) if out.grad is not None]
        self._wanted = [index for index, _ in outs]
        self._grads = [
            out.layout.spread(out.grad, call.samples)
            for _, out in outs
            if out.grad is not None and out.layout is not None
        ]
        self._shared = [path for path in self._leaves if path not in self._sliced]
        self._own = [path for path in self._leaves if path in self._sliced]
        self._others = [path for path in self._sliced if path not in self._leaves]

    def mapped(self, budget: int) -> dict[Path, Tensor]:
        """All samples at once, in chunks within the budget."""

        def one(grads: list[Tensor], own: list[Tensor], others: list[Tensor]) -> list[Tensor]:
            def function(*leaves: Tensor) -> tuple[Tensor, ...]:
                return self._outputs(leaves, others)

            found = vjp(function, *(self._leaves[path] for path in self._shared), *own)
            return list(found[1](tuple(grads)))

        own = [self._sliced[path] for path in self._own]
        others = [self._sliced[path] for path in self._others]
        size = sum(prod(self._leaves[path].shape) for path in self._leaves)
        chunk = max(1, budget // max(1, size))
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a missing batching rule: a loop is what it costs
            mapped = vmap(one, chunk_size=chunk, randomness="error")
            found = mapped(self._grads, own, others)
        return dict(zip((*self._shared, *self._own), found, strict=True))

    def one_by_one(self) -> dict[Path, Tensor]:
        """One sample after the other, with plain autograd."""
        paths = (*self._shared, *self._own)
        rows: dict[Path, list[Tensor]] = {path: [] for path in paths}
        for sample in range(self._call.samples):
            leaves = [self._leaves[path] for path in self._shared]
            leaves += [self._sliced[path][sample] for path in self._own]
            with torch.enable_grad():
                leaves = [leaf.detach().requires_grad_() for leaf in leaves]
                outs = self._outputs(leaves, [self._sliced[p][sample] for p in self._others])
                grads = [grad[sample] for grad in self._grads]
                found = torch.autograd.grad(outs, leaves, grads, allow_unused=True)
            for path, leaf, grad in zip(paths, leaves, found, strict=True):
                rows[path].append(torch.zeros_like(leaf) if grad is None else grad)
        return {path: torch.stack(parts) for path, parts in rows.items()}

    def _outputs(
        self, leaves: tuple[Tensor, ...] | list[Tensor], others: list[Tensor]
    ) -> tuple[Tensor, ...]:
        values = dict(zip((*self._shared, *self._own), leaves, strict=True))
        values.update(zip(self._others, others, strict=True))
        args, kwargs = replaced(
            self._call.args, self._call.kwargs, lambda path, tensor: values.get(path, tensor)
        )
        out = self._call.func(*args, **kwargs)
        made = [t for _, t in tensors_in((out,), {}) if t.is_floating_point() or t.is_complex()]
        if len(made) < len(self._call.outs):
            raise StructureDiffers(f"{self._call.name} gave fewer outputs when called again")
        return tuple(made[index] for index in self._wanted)


def _from_graph(call: Call) -> dict[Path, Tensor]:
    """Ask the recorded graph for the gradient of one sample after the other."""
    pairs = [
        (edge, out.grad, out.layout)
        for edge, out in zip(call.edges, call.outs, strict=True)
        if out.grad is not None and out.layout is not None
    ]
    paths = list(call.aliases)
    rows: dict[Path, list[Tensor]] = {path: [] for path in paths}
    for sample in range(call.samples):
        found = torch.autograd.grad(
            [edge for edge, _, _ in pairs],
            [call.aliases[path] for path in paths],
            [_only(grad, layout, sample, call.samples) for _, grad, layout in pairs],
            retain_graph=True,
            allow_unused=True,
        )
        for path, grad in zip(paths, found, strict=True):
            rows[path].append(torch.zeros_like(call.aliases[path]) if grad is None else grad)
    stacked = {path: torch.stack(parts) for path, parts in rows.items()}
    return {path: _own_slices(call, path, grads) for path, grads in stacked.items()}


def _only(grad: Tensor, layout: Layout, sample: int, samples: int) -> Tensor:
    masked = torch.zeros_like(grad)
    layout.spread(masked, samples)[sample] = layout.spread(grad, samples)[sample]
    return masked


def _own_slices(call: Call, path: Path, grads: Tensor) -> Tensor:
    """For an argument with a slice per sample: keep the slice of the sample itself."""
    layout = call.layouts.get(path)
    if layout is None:
        return grads
    wide = grads.to(common_dtype(grads))
    return torch.stack([layout.spread(wide[n], call.samples)[n] for n in range(call.samples)])
