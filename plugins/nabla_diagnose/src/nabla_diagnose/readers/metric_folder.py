"""MLflow's local run folders: one text file per metric, ``timestamp value step`` a line."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from nabla_core.errors import InputError

from .block import Block, blocks_of_rows
from .lines import read_lines
from .notes import Notes
from .number import parse_number

__all__ = ["is_metric_folder", "read_blocks", "read_file_blocks", "sniff"]

_LINE = re.compile(r"(\d{9,16}) (\S+)(?: (-?\d+))?")
_ONE_METRIC = re.compile(r"1\d{12} \S+ \d+")
_MAX_METRICS = 500
_SNIFFED_LINES = 50
_SURE = 0.9


def is_metric_folder(path: Path) -> bool:
    """Whether ``path`` is the ``metrics`` folder of an MLflow run."""
    if path.name != "metrics" or not path.is_dir():
        return False
    first = next((found for found in sorted(path.rglob("*")) if found.is_file()), None)
    if first is None:
        return False
    try:
        return bool(_LINE.fullmatch(next(read_lines(first), "")))
    except InputError:
        return False


def read_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a ``metrics`` folder; the files are merged by step.

    Raises:
        InputError: a file cannot be read.
    """
    files = [found for found in sorted(path.rglob("*")) if found.is_file()]
    if len(files) > _MAX_METRICS:
        notes.add(f"only {_MAX_METRICS} of {len(files)} metrics are read")
    series = [_series(found, str(found.relative_to(path)), notes) for found in files[:_MAX_METRICS]]
    yield from blocks_of_rows(_rows(heapq.merge(*series)))


def sniff(head: bytes) -> float:
    """Return how surely these first bytes are one metric of such a folder."""
    lines = head.decode("utf-8", "replace").splitlines()[:_SNIFFED_LINES]
    whole = lines[:-1] or lines
    return _SURE * bool(whole and all(_ONE_METRIC.fullmatch(line.strip()) for line in whole))


def read_file_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a single metric; its file has its name.

    Raises:
        InputError: it cannot be read.
    """
    parts = path.parts[path.parts.index("metrics") + 1 :] if "metrics" in path.parts else ()
    name = "/".join(parts) or path.name
    yield from blocks_of_rows(_rows(_series(path, name, notes)))


def _series(path: Path, name: str, notes: Notes) -> Iterator[tuple[float, float, str, float]]:
    for line in read_lines(path):
        found = _LINE.fullmatch(line.strip())
        if found is None:
            notes.add(f"metric {name!r}: a line is no measurement")
            continue
        try:
            value = parse_number(found[2])
        except ValueError:
            notes.add(f"metric {name!r}: a line is no measurement")
            continue
        yield float(found[3] or 0), float(found[1]), name, value


def _rows(merged: Iterator[tuple[float, float, str, float]]) -> Iterator[dict[str, float]]:
    for step, points in groupby(merged, key=lambda point: point[0]):
        row = {"step": step}
        for _, time_ms, name, value in points:
            row.setdefault("timestamp", time_ms)
            row[name] = value
        yield row
