"""Runs an operator: always from the same random state, counting its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from .callee import Callee
from .operands import Operands, Values, is_differentiable
from .rng import RandomState, restore
from .tree import Tree, flatten, leaves_of

__all__ = ["Cotangents", "Evaluator", "Gradients", "OperatorRaised", "Outputs"]

Cotangents = tuple[torch.Tensor, ...]
"""One per differentiable output, in the order of :attr:`Outputs.live`."""

Gradients = tuple[torch.Tensor | None, ...]
"""One per differentiable operand; ``None`` where autograd delivers nothing."""


_SPARSE = (
    torch.sparse_coo,
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
)
_NO_GRAD_CALL = "incompatible with .grad()"


class OperatorRaised(Exception):
    """The operator under test raised; ``stage`` says during what, ``error`` is its exception."""

    def __init__(self, stage: str, error: Exception | SystemExit) -> None:
        self.stage = stage
        self.error = error
        super().__init__(f"{stage}: {self.summary}")

    @property
    def summary(self) -> str:
        """Type and first line of the exception, shortened."""
        first = (str(self.error).strip().splitlines() or [""])[0]
        return f"{type(self.error).__name__}: {first[:160]}".rstrip(":. ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What one forward call returned.

    Attributes:
        tree: the flattened return value.
        live: indices of the leaves that carry a gradient.
    """

    tree: Tree
    live: tuple[int, ...]

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All tensors, also the ones without a gradient."""
        return tuple(leaf for leaf in self.tree.leaves if isinstance(leaf, torch.Tensor))

    @property
    def differentiable(self) -> tuple[torch.Tensor, ...]:
        """The outputs that carry a gradient."""
        return self.pick(self.live)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of :attr:`tensors`."""
        pairs = zip(self.tree.names, self.tree.leaves, strict=True)
        return tuple(name for name, leaf in pairs if isinstance(leaf, torch.Tensor))

    @property
    def live_names(self) -> tuple[str, ...]:
        """Names of the outputs that carry a gradient."""
        return tuple(self.tree.names[index] for index in self.live)

    def pick(self, indices: Sequence[int]) -> tuple[torch.Tensor, ...]:
        """Return the leaves ``indices`` that are tensors."""
        leaves = self.tree.leaves
        chosen = [leaves[index] for index in indices if index < len(leaves)]
        return tuple(leaf for leaf in chosen if isinstance(leaf, torch.Tensor))


class Evaluator:
    """Calls one operator.

    Args:
        callee: the operator.
        operands: what it is called with by default.
        start: state of the random generators before every call of a stochastic operator.

    Attributes:
        stochastic: the operator draws random numbers, so every call starts from ``start``.
        hands_copies: the operator works in place, so it gets copies that are no leaves.
        accumulates: gradients come through ``backward()`` and ``.grad``, for ``grad()`` is refused.
        gives_sparse: an output is sparse; it is judged by its dense values.
        handed: leaves that the last call was given.
        forwards: calls so far.
        backwards: backward passes so far.
    """

    def __init__(self, callee: Callee, operands: Operands, start: RandomState) -> None:
        self.callee = callee
        self.operands = operands
        self.start = start
        self.stochastic = False
        self.hands_copies = False
        self.accumulates = False
        self.gives_sparse = False
        self.handed: list[object] = []
        self.forwards = 0
        self.backwards = 0
        self._generators = {
            leaf: leaf.get_state()
            for leaf in operands.tree.leaves
            if isinstance(leaf, torch.Generator)
        }

    @property
    def draws(self) -> bool:
        """Whether the operator draws random numbers, from a global or a given generator."""
        return self.stochastic or bool(self._generators)

    def forward(
        self, values: Values, *, operands: Operands | None = None, stage: str = "forward"
    ) -> Outputs:
        """Call the operator.

        Args:
            values: differentiable operands, handed over as they are.
            operands: the other arguments; by default those of the evaluator.
            stage: what this call is for, in messages.

        Raises:
            OperatorRaised: the operator raised.
        """
        returned = self._call(values, operands or self.operands, stage)
        tree = flatten(returned, "output")
        if any(map(_is_sparse, tree.leaves)):
            self.gives_sparse = True
            tree = replace(tree, leaves=tuple(map(_dense, tree.leaves)))
        live = tuple(
            index
            for index, leaf in enumerate(tree.leaves)
            if is_differentiable(leaf) and isinstance(leaf, torch.Tensor) and leaf.requires_grad
        )
        return Outputs(tree=tree, live=live)

    def values_at(
        self, points: Values, live: Sequence[int], *, operands: Operands | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Return the outputs ``live`` at ``points`` without recording a graph."""
        with torch.no_grad():
            returned = self._call(points, operands or self.operands, "forward nearby")
            leaves = leaves_of(returned)
            if self.gives_sparse:
                leaves = list(map(_dense, leaves))
        chosen = [leaves[index] for index in live if index < len(leaves)]
        return tuple(leaf for leaf in chosen if isinstance(leaf, torch.Tensor))

    def _call(self, values: Values, operands: Operands, stage: str) -> object:
        passed = tuple(x.clone() for x in values) if self.hands_copies else values
        self.handed = operands.leaves_with(passed)
        args, kwargs, state = operands.call(self.handed)
        self.forwards += 1
        if self.stochastic:
            restore(self.start)
        for generator, seed_state in self._generators.items():
            generator.set_state(seed_state)
        try:
            return self.callee(args, kwargs, state)
        except (Exception, SystemExit) as error:  # an exit would hide all that was found
            raise OperatorRaised(stage, error) from error

    def vjp(
        self,
        outputs: Outputs,
        values: Values,
        cotangents: Sequence[torch.Tensor],
        *,
        create_graph: bool = False,
        stage: str = "backward",
    ) -> Gradients:
        """Pull ``cotangents`` back through ``outputs``; the graph is kept.

        Raises:
            OperatorRaised: the backward raised.
        """
        return self.pull(
            outputs.differentiable, values, cotangents, create_graph=create_graph, stage=stage
        )

    def pull(
        self,
        tensors: Sequence[torch.Tensor],
        values: Values,
        cotangents: Sequence[torch.Tensor],
        *,
        create_graph: bool = False,
        stage: str = "backward",
    ) -> Gradients:
        """Like :meth:`vjp`, for any tensors of the graph."""
        if not tensors or not values:
            return tuple(None for _ in values)
        self.backwards += 1
        try:
            pulled = self._pull(tensors, values, cotangents, create_graph)
            if all(g is None or g.layout is torch.strided for g in pulled):
                return pulled
            return tuple(map(_dense, pulled))
        except (Exception, SystemExit) as error:
            raise OperatorRaised(stage, error) from error

    def _pull(
        self,
        tensors: Sequence[torch.Tensor],
        values: Values,
        cotangents: Sequence[torch.Tensor],
        create_graph: bool,
    ) -> Gradients:
        try:
            if not self.accumulates:
                return torch.autograd.grad(
                    tensors,
                    values,
                    cotangents,
                    retain_graph=True,
                    create_graph=create_graph,
                    allow_unused=True,
                )
        except RuntimeError as error:
            if _NO_GRAD_CALL not in str(error):
                raise
            self.accumulates = True  # reentrant checkpoints work with .backward() only
        for value in values:
            value.grad = None
        torch.autograd.backward(tensors, cotangents, retain_graph=True, create_graph=create_graph)
        gradients = tuple(value.grad for value in values)
        for value in values:
            value.grad = None
        return gradients


_Leaf = TypeVar("_Leaf")


def _dense(leaf: _Leaf) -> _Leaf:
    """Sparse outputs and gradients, as embeddings give, count by their values."""
    return leaf.to_dense() if _is_sparse(leaf) else leaf  # type: ignore[attr-defined]


def _is_sparse(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout in _SPARSE
