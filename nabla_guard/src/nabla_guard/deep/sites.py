"""Where ops run: an op in a module, in the loss, or in a backward pass, with the range it gave."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from torch._ops import OpOverload

from ..facts import Place
from ..taps.place import Line, user_line

__all__ = ["OpRange", "SiteTable", "Sites"]

_MOST = 4096

Sites = dict[OpOverload, int]
"""Number of the site of each op that was seen in one place; -1 when it is not measured."""

Part = Literal["forward", "loss", "backward"]


@dataclass(slots=True, kw_only=True, eq=False)
class OpRange:
    """What an op gave in one place, over the whole run.

    Attributes:
        op: as torch calls it, e.g. ``"aten::exp"``.
        module: path of the module that ran it; ``""`` outside of modules and in backward.
        part: part of the step.
        calls: measured results.
        low: smallest value; NaN when a result held one.
        high: largest value, likewise.
        line: the user's line at the first call.
    """

    op: str
    module: str
    part: Part
    calls: int = 0
    low: float = math.inf
    high: float = -math.inf
    line: Line | None = None

    @property
    def place(self) -> Place | None:
        """The user's line at the first call, where it was captured."""
        return None if self.line is None else self.line.place

    def add(self, low: float, high: float) -> None:
        """Join with the range of one more result."""
        self.calls += 1
        if not low >= self.low:
            self.low = low if self.low == self.low else math.nan
        if not high <= self.high:
            self.high = high if self.high == self.high else math.nan


class SiteTable:
    """The sites of one loop.

    Args:
        operations: globs for the ops to measure; empty for all of them.
        capture_source: whether to note the user's line.
    """

    def __init__(self, operations: Iterable[str], capture_source: bool) -> None:
        self.sites: list[OpRange] = []
        self.operations = tuple(operations)
        self._capture_source = capture_source

    def number(self, op: OpOverload, module: str, part: Part) -> int:
        """Return the number of a new site; -1 when it is not to be measured."""
        name = op._schema.name
        if op.is_view or "empty" in name or len(self.sites) >= _MOST or not self._is_wanted(name):
            return -1
        line = user_line() if self._capture_source and part != "backward" else None
        self.sites.append(OpRange(op=name, module=module, part=part, line=line))
        return len(self.sites) - 1

    def _is_wanted(self, name: str) -> bool:
        plain = name.partition("::")[2]
        return not self.operations or any(
            fnmatchcase(name, glob) or fnmatchcase(plain, glob) for glob in self.operations
        )
