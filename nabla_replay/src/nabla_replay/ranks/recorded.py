"""Compares the records that the ranks of one run left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nabla_core.errors import UsageError

from ..errors import RecordError
from ..fingerprints.fingerprinter import value_bytes
from ..fingerprints.layout import Extent, Piece, cut_evenly
from ..replaying.history import segments_of
from ..replaying.tables import recorded_extents
from ..replaying.window import part_in
from ..store.entries import StepEntry
from ..store.reader import RunReader
from .result import RankComparison, odd_ranks, ranks_issue

__all__ = ["compare_records"]

_COMPONENTS = ("optimizer", "scheduler", "scaler")


def compare_records(folder: Path) -> RankComparison:
    """Find the first step after which the parameters of two ranks differ.

    Buffers are left out: statistics of BatchNorm differ by design. So are gradients, which a rank
    may have cleared already.

    Raises:
        UsageError: the run was recorded by one rank only.
        InputError: it cannot be read.
    """
    with RunReader.open(folder) as reader:
        ranks = reader.ranks
        if len(ranks) < 2:
            raise UsageError(f"compare_ranks: {folder} was recorded by {len(ranks)} rank only")
        steps = {rank: _steps(reader, rank) for rank in ranks}
        algorithm = reader.header.hash_algorithm
        if algorithm not in ("crc32", "mlh64"):
            raise RecordError(f"{folder}: fingerprints by {algorithm!r} cannot be compared")
        size = value_bytes("crc32" if algorithm == "crc32" else "mlh64")
        names, extents = recorded_extents(reader.header.tables)
    shared = sorted(set.intersection(*(set(known) for known in steps.values())))
    layout = _Layout(names, extents, size)
    for step in shared:
        entries = {rank: known[step] for rank, known in steps.items()}
        differing = layout.differing(entries)
        if differing:
            also = _also(entries)
            return RankComparison(
                ranks=ranks,
                issues=(ranks_issue(differing, step, also),),
                first_step=step,
                differing=differing,
                compared_steps=len(shared),
            )
    return RankComparison(ranks=ranks, compared_steps=len(shared))


class _Layout:
    """Which value of a record belongs to which parameter."""

    def __init__(
        self, names: Sequence[tuple[str, str]], extents: list[Extent], value_size: int
    ) -> None:
        self._names = names
        self._extents = extents
        self._size = value_size
        self._cuts: dict[int, tuple[tuple[Piece, ...], ...]] = {}

    def differing(self, entries: dict[int, StepEntry]) -> dict[str, tuple[int, ...]]:
        """Return the parameters that differ, where all ranks looked at the same part."""
        looked = {part_in(entry) for entry in entries.values()}
        if len(looked) != 1 or any(one.is_brief for one in entries.values()):
            return {}
        part, parts = looked.pop()
        if parts not in self._cuts:
            gradients = [component == "gradient" for component, _ in self._names]
            self._cuts[parts] = cut_evenly(self._extents, gradients, parts)
        packed = {rank: next(iter(one.vectors.values()), b"") for rank, one in entries.items()}
        found: dict[str, tuple[int, ...]] = {}
        for at, piece in enumerate(self._cuts[parts][part]):
            component, name = self._names[piece.entry]
            if component != "parameter":
                continue
            values = {
                rank: raw[at * self._size : (at + 1) * self._size] for rank, raw in packed.items()
            }
            odd = odd_ranks(values)
            if odd:
                found[name] = odd
        return found


def _steps(reader: RunReader, rank: int) -> dict[int, StepEntry]:
    """The steps of the last segment in which each was recorded."""
    return {
        entry.step: entry for segment in segments_of(reader.log(rank)) for entry in segment.steps
    }


def _also(entries: dict[int, StepEntry]) -> tuple[str, ...]:
    return tuple(
        name
        for name in _COMPONENTS
        if len({entry.digests.get(name, "") for entry in entries.values()}) > 1
    )
