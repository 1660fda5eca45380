"""Sums the Gram matrix of the samples, parameter by parameter, and drops the rows."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .contribution import Contribution, common_dtype
from .layer_rows import LAYER_RULES, fixed_embedding
from .layout import Layout
from .parts import Measure, Parts
from .sources import DenseRows, OuterRows, RowSource, TokenRows, blockwise

__all__ = ["Bank", "BankOptions", "Measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BankOptions:
    """What to sum.

    Attributes:
        measure: see :data:`Measure`.
        budget: elements that temporaries may have.
        every_layer: whether the sums of each parameter are kept.
        sketch_size: axes of a matrix that are longer are projected to this length.
    """

    measure: Measure = "pairs"
    budget: int = 4_000_000
    every_layer: bool = False
    sketch_size: int = 32


class Bank:
    """Receives contributions in any order.

    Args:
        names: identity of each parameter → its name.
        uses: how often each is used; the rows of all uses are added before they are multiplied.
        samples: batch size.
        options: what to sum.

    Attributes:
        options: what to sum.
        skipped: names that are left out.
    """

    def __init__(
        self,
        names: Mapping[int, str],
        uses: Mapping[int, int],
        samples: int,
        options: BankOptions,
    ) -> None:
        self.options = options
        self.skipped: frozenset[str] = frozenset()
        self._names, self._uses, self._samples = names, uses, samples
        self._pending: dict[int, list[RowSource]] = {}
        self._parts = Parts(options.measure, every_layer=options.every_layer)

    def add(self, found: Contribution) -> None:
        """Take the rows of one use in."""
        origin = found.origin
        if self.skipped and all(self._names[root] in self.skipped for root in origin.roots):
            return
        if origin.is_parameter and found.own is None:
            (root,) = origin.roots
            self._take(root, found.source)
            return
        if found.own is not None and self._through_maker(found):
            return
        if found.own is None and self._through_table(found):
            return
        for root, rows in self._pushed_back(found).items():
            self._take(root, DenseRows(rows))

    def names_of(self, roots: frozenset[int]) -> list[str]:
        """Return the names of parameters."""
        return [self._names[root] for root in roots if root in self._names]

    @property
    def total(self) -> Tensor | None:
        """Gram ``[N, N]`` or squared norms ``[N]``, float64; after :meth:`flush`."""
        return self._parts.total

    @property
    def layers(self) -> dict[str, Tensor]:
        """The same for each parameter, if wanted; after :meth:`flush`."""
        return self._parts.layers

    def checks(self) -> dict[str, tuple[float | None, float]]:
        """Return for each name the squared norm of the sum over the samples, if it is known, and
        the sum of their squared norms; after :meth:`flush`."""
        return self._parts.checks()

    def flush(self) -> None:
        """Multiply the rows of parameters with several uses; after the backward pass."""
        for root in list(self._pending):
            self._close(root, self._pending.pop(root))
        self._parts.fold()

    # ------------------------------------------------------------------ private
    def _take(self, root: int, source: RowSource) -> None:
        if self._names[root] in self.skipped:
            return
        if self._uses.get(root, 1) == 1:
            self._close(root, [source])
        else:
            self._pending.setdefault(root, []).append(source)

    def _close(self, root: int, sources: Sequence[RowSource]) -> None:
        name = self._names[root]
        pairs, budget = self.options.measure != "norms", self.options.budget
        if self.options.measure == "sketch":
            sources = _sketched(sources, self.options.sketch_size, name)
        part = sources[0].shortcut(pairs, budget) if len(sources) == 1 else None
        whole = None
        if part is None:
            part, whole = blockwise(sources, pairs, budget)
        self._parts.add(name, part, whole)

    def _through_table(self, found: Contribution) -> bool:
        """Give the rows of something that is looked up, as positions are, to its table."""
        maker, source = found.origin.maker, found.source
        if maker is None:
            return False
        part = fixed_embedding(maker, source.block(0, source.shape[0]))
        if part is not None:
            self.add(part)
        return part is not None

    def _through_maker(self, found: Contribution) -> bool:
        """Apply the rule of the function that made a value with a slice per sample."""
        maker, own = found.origin.maker, found.own
        if maker is None or own is None or maker.outs[0].layout != own:
            return False
        slices = found.source.block(0, found.source.shape[0])
        one = own.spread(found.origin.tensor, self._samples).shape
        grad = own.gather(slices.reshape(one))
        made = LAYER_RULES[maker.func](maker, grad, self.options.budget)
        parts = [] if made is None else list(made)
        if len(parts) != len(maker.tracked):
            return False
        for part in parts:
            self.add(part)
        return True

    def _pushed_back(self, found: Contribution) -> dict[int, Tensor]:
        """Carry rows of a computed value back to the parameters that it was computed from."""
        origin, source = found.origin, found.source
        shape = origin.tensor.shape
        rows = source.block(0, source.shape[0])
        if found.own is None:
            cotangents = rows.reshape(self._samples, *shape)
        else:
            cotangents = _slices(rows, found.own, tuple(shape), self._samples)
        cotangents = cotangents.to(origin.tensor.dtype)
        if origin.is_parameter:
            return {next(iter(origin.roots)): cotangents}
        roots = list(origin.roots)
        leaves = [self._leaf(origin.tensor, root) for root in roots]
        known = [(root, leaf) for root, leaf in zip(roots, leaves, strict=True) if leaf is not None]
        grads = _batched_grad(origin.tensor, [leaf for _, leaf in known], cotangents)
        return {
            root: grad.to(common_dtype(grad))
            for (root, _), grad in zip(known, grads, strict=True)
            if grad is not None
        }

    def _leaf(self, tensor: Tensor, root: int) -> Tensor | None:
        """Find the parameter with identity ``root`` in the graph of a computed value."""
        queue, seen = [tensor.grad_fn], set()
        while queue:
            node = queue.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None and id(variable) == root:
                return variable if isinstance(variable, Tensor) else None
            queue.extend(child for child, _ in node.next_functions)
        return None


def _slices(rows: Tensor, layout: Layout, shape: tuple[int, ...], samples: int) -> Tensor:
    """Return ``[N, *shape]``: entry ``n`` holds only the slice of sample ``n``."""
    whole = rows.new_zeros(samples, *shape)
    one = layout.spread(whole[0], samples)[0].shape
    for sample in range(samples):
        layout.spread(whole[sample], samples)[sample] = rows[sample].reshape(one)
    return whole


def _batched_grad(
    value: Tensor, leaves: list[Tensor], cotangents: Tensor
) -> tuple[Tensor | None, ...]:
    """Return for each leaf the gradients under every cotangent, stacked; ``None`` when unused."""
    try:
        return torch.autograd.grad(
            [value],
            leaves,
            [cotangents],
            retain_graph=True,
            allow_unused=True,
            is_grads_batched=True,
        )
    except RuntimeError:  # no batching rule
        rows = [
            torch.autograd.grad([value], leaves, [one], retain_graph=True, allow_unused=True)
            for one in cotangents
        ]
        columns = zip(*rows, strict=True)
        return tuple(
            None if parts[0] is None else torch.stack([part for part in parts if part is not None])
            for parts in columns
        )


def _sketched(sources: Sequence[RowSource], size: int, name: str) -> list[RowSource]:
    """Project the factors of matrices; other rows stay as they are.

    Uses of one matrix get the same projection of its second axis, so that they still add up.
    """
    matrices = [s for s in sources if isinstance(s, (OuterRows, TokenRows))]
    if len(matrices) < len(sources):
        return list(sources)
    width = sources[0].shape[1]
    alone = len(sources) == 1
    found: list[RowSource] = []
    for source in matrices:
        if isinstance(source, TokenRows):
            found.append(
                TokenRows(source.index, _projected(source.values, size, name), source.size)
            )
        elif alone and source.left.shape[1] == 1:
            found.append(source)  # exact is as cheap
        else:
            left = _projected(source.left, size, name + "|") if alone else source.left
            found.append(OuterRows(left, _projected(source.right, size, name)))
    return found if width > size or alone else list(sources)


def _projected(values: Tensor, size: int, name: str) -> Tensor:
    """Project the last axis; inner products are kept on average.

    Source: Johnson and Lindenstrauss 1984, with Gaussian entries of variance ``1 / size``.
    """
    width = values.shape[-1]
    if width <= size:
        return values
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    matrix = torch.randn(width, size, generator=generator) / size**0.5
    found: Tensor = values @ matrix.to(device=values.device, dtype=values.dtype)
    return found
