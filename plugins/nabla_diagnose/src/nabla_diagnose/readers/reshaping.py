"""Tables that are not one row per step of one run.

* *wide*: columns of several runs side by side;
* *long*: a column of metric names and one of values;
* *by phase*: a column that says ``train`` or ``val``, so that one name means two quantities;
* *by run*: a column that names the run;
* *messages*: a column that holds a log in text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .block import Block, blocks_of_rows
from .by_run import RUN_NAMES
from .columnar import blocks_of_cells, blocks_of_table, is_summary
from .dialect import is_numeric
from .file_tag import tag_of_file
from .messages import message_column
from .naming import AXES, Split, name_of, plain_name, split_of
from .notes import Notes
from .number import parse_cell
from .table_file import Cells, TableFile
from .text_rows import rows_of_lines
from .wide_runs import wide_groups

__all__ = ["reshaped_blocks"]

_PHASES = frozenset(
    {"phase", "split", "mode", "stage", "subset", "dataset", "set", "partition", "context"}
)
_METRICS = frozenset(
    {"metric", "tag", "key", "name", "variable", "measure", "metric name", "series"}
)
_VALUES = frozenset({"value", "val", "metric value"})
_MAX_RUNS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Places of the columns that make a table unusual."""

    phase: int | None = None
    run: int | None = None
    metric: int | None = None
    value: int | None = None


def reshaped_blocks(table: TableFile, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a table of any shape.

    Raises:
        InputError: the file is damaged.
    """
    table.names = _named_by_file(table.names, table.path)
    groups = wide_groups(table.names)
    if groups:
        yield from _wide_blocks(table, groups, notes)
        return
    message = message_column(table.names, table.sample)
    if message is not None:
        yield from blocks_of_rows(rows_of_lines(_at(row, message) for row in table.rows()))
        return
    shape = _shape_of(table)
    if shape == _Shape():
        yield from blocks_of_table(table, notes)
        return
    yield from _run_blocks(table, shape, notes)


def _named_by_file(names: list[str], path: Path) -> list[str]:
    """A download of one curve has columns such as Wall time, Step, Value: its file has the name."""
    measured = [name for name in names if name_of(name).quantity not in AXES]
    if [plain_name(name) for name in measured] not in (["value"], ["metric"]):
        return names
    tag = tag_of_file(path)
    return names if tag is None else [tag if name == measured[0] else name for name in names]


# ---------------------------------------------------------------------- wide
def _wide_blocks(
    table: TableFile, groups: dict[str, dict[str, int]], notes: Notes
) -> Iterator[Block]:
    taken = {place for metrics in groups.values() for place in metrics.values()}
    axes = [
        place
        for place, name in enumerate(table.names)
        if place not in taken and name_of(name).quantity in AXES
    ]
    for number, (run, metrics) in enumerate(groups.items()):
        if len(groups) > 1:
            notes.add(f"columns of run {run!r} are judged apart")
        places = sorted([*axes, *metrics.values()])
        named = {place: metric for metric, place in metrics.items()}
        names = [named.get(place, name) for place, name in enumerate(table.names)]
        wanted = set(metrics.values())
        rows = (row for row in table.rows() if any(_filled(row, place) for place in wanted))
        for index, block in enumerate(blocks_of_cells(rows, names, notes, places)):
            starts = number > 0 and index == 0
            yield Block(columns=block.columns, size=block.size, starts_run=starts)


def _filled(row: Cells, place: int) -> bool:
    return place < len(row) and bool(row[place].strip())


# ---------------------------------------------------------------------- long, phase, run
def _shape_of(table: TableFile) -> _Shape:
    plain = [plain_name(name) for name in table.names]
    phase = _column([name.rsplit(" ", 1)[-1] for name in plain], _PHASES, table, _says_phase)
    run = _column(plain, RUN_NAMES, table, None)
    value = next((place for place, name in enumerate(plain) if name in _VALUES), None)
    metric = None if value is None else _column(plain, _METRICS, table, _says_text)
    return _Shape(phase=phase, run=run, metric=metric, value=value if metric is not None else None)


def _column(
    plain: Sequence[str], allowed: frozenset[str], table: TableFile, fits: object
) -> int | None:
    for place, name in enumerate(plain):
        cells = [row[place] for row in table.sample if place < len(row)]
        if name in allowed and cells and (not callable(fits) or fits(cells)):
            return place
    return None


def _says_phase(cells: Sequence[str]) -> bool:
    return all(split_of(cell) is not Split.UNSAID for cell in cells)


def _says_text(cells: Sequence[str]) -> bool:
    return not any(is_numeric(cell) for cell in cells)


def _run_blocks(table: TableFile, shape: _Shape, notes: Notes) -> Iterator[Block]:
    if shape.run is None:
        yield from blocks_of_rows(_rows(table, shape, None))
        return
    keys: dict[str, None] = {}
    for row in table.rows():
        if shape.run < len(row) and len(keys) < _MAX_RUNS:
            keys.setdefault(row[shape.run].strip())
    for number, key in enumerate(keys):
        if len(keys) > 1:
            notes.add(f"rows of {table.names[shape.run]} {key!r} are judged apart")
        for index, block in enumerate(blocks_of_rows(_rows(table, shape, key))):
            starts = number > 0 and index == 0
            yield Block(columns=block.columns, size=block.size, starts_run=starts)


def _rows(table: TableFile, shape: _Shape, run: str | None) -> Iterator[dict[str, float]]:
    for row in table.rows():
        if is_summary(row):
            continue
        if run is None or (shape.run is not None and _at(row, shape.run) == run):
            found = _row(row, table.names, shape)
            if found:
                yield found


def _row(row: Cells, names: Sequence[str], shape: _Shape) -> dict[str, float]:
    prefix = ""
    if shape.phase is not None:
        split = split_of(_at(row, shape.phase))
        prefix = f"{split.value}_" if split is not Split.UNSAID else ""
    found: dict[str, float] = {}
    for place, name in enumerate(names[: len(row)]):
        if place in (shape.phase, shape.run, shape.metric):
            continue
        try:
            value = parse_cell(row[place])
        except ValueError:
            continue
        if value is None:
            continue
        if place == shape.value and shape.metric is not None:
            name = _at(row, shape.metric)
        found[name if name_of(name).quantity in AXES else f"{prefix}{name}"] = value
    return found


def _at(row: Cells, place: int) -> str:
    return row[place].strip() if place < len(row) else ""
