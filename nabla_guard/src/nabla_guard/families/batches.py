"""What goes into the model: columns of its first batches that carry nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from ..loop.watch import Watch

if TYPE_CHECKING:
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["BatchWatch", "ColumnFacts"]

_LOOKS = 3
_MIN_ROWS = 8
_MAX_COLUMNS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """The columns of one root module's two-dimensional input, over its first batches.

    Attributes:
        module: class name of the root module.
        argument: name of its input.
        batches: batches looked at.
        rows: rows in them.
        columns: number of columns.
        broken: columns that held no finite value at all.
        constant: columns that held one and the same value.
    """

    module: str
    argument: str
    batches: int
    rows: int
    columns: int
    broken: tuple[int, ...]
    constant: tuple[int, ...]


class BatchWatch(Watch):
    """Looks at the columns of the first three batches that a root module trains on.

    Attributes:
        columns: what was found; filled once.
    """

    patient = frozenset({"forward_ended"})

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.columns: list[ColumnFacts] = []
        self._batches: dict[int, list[Tensor]] = {}
        self._done: set[int] = set()

    def stop(self) -> None:
        """Let go of the batches."""
        self._batches.clear()

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """Keep the first batches, and judge their columns when there are enough."""
        key = id(root)
        if key in self._done or not torch.is_grad_enabled() or not root.facts.parameters:
            return
        given = args[0] if args else next(iter(kwargs.values()), None)
        if not isinstance(given, Tensor) or not _is_table(given):
            self._done.add(key)
            return
        kept = self._batches.setdefault(key, [])
        kept.append(given.detach())
        if len(kept) == _LOOKS:
            self._done.add(key)
            self._read(root, self._batches.pop(key))

    def _read(self, root: RootRecord, batches: list[Tensor]) -> None:
        if len({batch.shape[1] for batch in batches}) != 1:
            return
        table = torch.cat(batches)
        finite = torch.isfinite(table)
        broken = ~finite.any(0)
        constant = (table == table[0]).all(0)
        self.columns.append(
            ColumnFacts(
                module=root.facts.name,
                argument="argument 0",
                batches=len(batches),
                rows=table.shape[0],
                columns=table.shape[1],
                broken=tuple(broken.nonzero().flatten().tolist()),
                constant=tuple(constant.nonzero().flatten().tolist()),
            )
        )


def _is_table(given: Tensor) -> bool:
    return (
        given.dim() == 2
        and given.is_floating_point()
        and not given.requires_grad
        and not given.is_meta
        and given.shape[0] >= _MIN_ROWS
        and 1 < given.shape[1] <= _MAX_COLUMNS
    )
