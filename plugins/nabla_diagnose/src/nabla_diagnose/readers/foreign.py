"""Readers of other plugins: they yield step records, which are cut into runs here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import cast

from nabla_core.declarations import Reader, Target
from nabla_core.host import default_host
from nabla_core.records import StepRecord

from .assembling import Piece
from .lines import head_of
from .mapping import ReadOptions
from .segments import PlaceKind, RunTracker

__all__ = ["foreign_reader", "pieces_of"]

_OWN = "nabla_diagnose."
_LEAST, _NAMED = 0.25, 0.25


def foreign_reader(path: Path) -> Reader | None:
    """Return the reader of another plugin that is surest of a file, if any is.

    Raises:
        InputError: the file cannot be read.
        PluginError: a reader cannot be loaded.
    """
    readers = [found for found in default_host().readers if not found.target.startswith(_OWN)]
    if not readers or path.is_dir():
        return None
    head = head_of(path)
    scores = [(_score(reader, path, head), place) for place, reader in enumerate(readers)]
    best, place = max(scores)
    return readers[place] if best >= _LEAST else None


def pieces_of(reader: Reader, path: Path, options: ReadOptions) -> Iterator[Piece]:
    """Yield the records of another plugin's reader, cut where the steps start again.

    Raises:
        PluginError: the reader cannot be loaded.
    """
    read = cast("Callable[[Path, ReadOptions], Iterable[StepRecord]]", reader.load())
    tracker = RunTracker(numbered=False)
    for record in read(path, options):
        place = tracker.place(float(record.step), None, (*record.signals, *record.layers))
        if place.kind is PlaceKind.RESTART:
            yield Piece(begins=True)
        yield Piece(records=[record])


def _score(reader: Reader, path: Path, head: bytes) -> float:
    named = _NAMED * any(path.name.endswith(suffix) for suffix in reader.suffixes)
    if not reader.sniff:
        return named
    sniff = Target(name=reader.name, target=reader.sniff).load()
    return named + cast("Callable[[bytes], float]", sniff)(head)
