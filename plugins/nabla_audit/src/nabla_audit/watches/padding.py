"""Padded positions that a loss counts: read off the graph from the tokens to the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor
from torch.autograd.graph import Node
from torch.optim import Optimizer

from nabla_guard.facts import Place
from nabla_guard.families.graph import name_of, nodes_from, saved_int, saved_tensor
from nabla_guard.families.saved_hooks import SavedHooksWatch
from nabla_guard.loop.watch import EVERY_EVENT, Watch
from nabla_guard.taps.place import user_place

if TYPE_CHECKING:
    from nabla_guard.loop.book import OptimizerRecord
    from nabla_guard.loop.live import LiveLoop

__all__ = ["PaddingFacts", "PaddingWatch"]

_PASSES = 3  # until an embedding with a padding_idx is seen
_PASSES_WITH_TABLES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddingFacts:
    """One loss over classes that counts padded positions.

    Attributes:
        index: the ``padding_idx`` of the embedding.
        padded: targets that are padding where the token is padding too.
        targets: all targets.
        ignored: the loss's ``ignore_index``.
        place: where backward was called.
    """

    index: int
    padded: int
    targets: int
    ignored: int
    place: Place | None


class PaddingWatch(Watch):
    """Looks at the graphs of the first backward passes.

    Attributes:
        seen: what the passes since the last step show.
    """

    patient = EVERY_EVENT

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.seen: list[PaddingFacts] = []
        self._left = _PASSES
        self._has_tables = False
        self._hooks = loop.watches.gather(SavedHooksWatch)

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """Read what the embeddings and the losses have saved."""
        if self._left <= 0 or self._hooks.hooked:
            return
        self._left -= 1
        tops = [root.grad_fn for root in roots if root.grad_fn is not None]
        losses: list[Node] = []
        tables: list[Node] = []
        for node in nodes_from(tops):
            name = name_of(node)
            if name.startswith("NllLoss"):
                losses.append(node)
            elif name == "Embedding" and (saved_int(node, "padding_idx") or 0) >= 0:
                tables.append(node)
        if tables and not self._has_tables:
            self._has_tables, self._left = True, _PASSES_WITH_TABLES
        for loss in losses if tables else ():
            found = next(filter(None, (_padding(loss, table) for table in tables)), None)
            if found is not None:
                self.seen.append(found)

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Start a new step."""
        if self.seen:
            self.seen = []


def _padding(loss: Node, table: Node) -> PaddingFacts | None:
    """The padding of one loss, if every position whose token is padding has it for a target and
    nothing leaves it out: neither the loss, nor a weight, nor a mask behind it."""
    index, ignored = saved_int(table, "padding_idx"), saved_int(loss, "ignore_index")
    tokens, targets = saved_tensor(table, "indices"), saved_tensor(loss, "target")
    if index is None or ignored is None or tokens is None or targets is None or index == ignored:
        return None
    if tokens.numel() != targets.numel() or tokens.dim() < 2 or not saved_int(loss, "reduction"):
        return None
    weight = saved_tensor(loss, "weight")
    if weight is not None and index < weight.numel() and not bool(weight[index]):
        return None
    padded = tokens.reshape(-1) == index
    counted = targets.reshape(-1)[padded]
    count = int(padded.sum())
    if not count or count == tokens.numel() or not bool((counted == index).all()):
        return None
    if not bool((tokens[..., 1:] == index)[tokens[..., :-1] == index].all()):
        return None  # no tail: the index stands between tokens
    return PaddingFacts(
        index=index,
        padded=count,
        targets=targets.numel(),
        ignored=ignored,
        place=user_place(),
    )
