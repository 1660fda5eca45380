"""A folder of TensorBoard event files as one run: pieces in order, splits side by side.

A run may be written in several files (after each restart of the process), and its validation into
a folder beside, e.g. ``train/`` and ``validation/``, with the same tags.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from .block import Block, blocks_of_rows
from .event_file import Scalar, read_scalars, rows_of_scalars
from .naming import Split, name_of, split_of
from .notes import Notes

__all__ = ["event_files", "is_event_folder", "read_blocks", "split_folders"]

_MAX_FILES = 1_000


def event_files(folder: Path) -> list[Path]:
    """Return the event files right in a folder, in the order in which they were begun."""
    found = [path for path in folder.glob("*tfevents*") if path.is_file()]
    return sorted(found)[:_MAX_FILES]


def is_event_folder(folder: Path) -> bool:
    """Whether a folder, or folders of splits in it, hold event files."""
    return bool(event_files(folder)) or bool(split_folders(folder))


def split_folders(folder: Path) -> list[tuple[Path, Split]]:
    """Return the folders of event files below, if each is called after a split."""
    found: list[tuple[Path, Split]] = [
        (child, split_of(child.name))
        for child in sorted(folder.iterdir())
        if child.is_dir() and not child.is_symlink() and event_files(child)
    ]
    return [] if any(split is Split.UNSAID for _, split in found) else found


def read_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a folder of event files.

    Raises:
        InputError: a file cannot be read.
    """
    streams = [_scalars(path, Split.UNSAID, notes)]
    streams += [_scalars(folder, split, notes) for folder, split in split_folders(path)]
    merged = heapq.merge(*streams, key=lambda scalar: scalar.step) if streams[1:] else streams[0]
    yield from blocks_of_rows(rows_of_scalars(iter(merged)))


def _scalars(folder: Path, split: Split, notes: Notes) -> Iterator[Scalar]:
    every = chain.from_iterable(read_scalars(path, notes) for path in event_files(folder))
    for scalar in every:
        if split is Split.UNSAID or name_of(scalar.tag).split is not Split.UNSAID:
            yield scalar
        else:
            yield Scalar(f"{split.value}/{scalar.tag}", scalar.step, scalar.time_s, scalar.value)
