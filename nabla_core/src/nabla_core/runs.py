"""What a store of runs answers to ``nabla runs``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RunListRequest", "RunTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListRequest:
    """Which runs a person wants to see.

    Attributes:
        last: at most so many, the latest.
        every: also those of other projects, where a store keeps several apart.
    """

    last: int = 20
    every: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTable:
    """The runs of one store.

    Attributes:
        lines: the runs as a table for a person, the latest last; or how runs get into the store.
        records: the same runs as JSON objects.
    """

    lines: tuple[str, ...]
    records: tuple[dict[str, object], ...] = ()
