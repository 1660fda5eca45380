"""``trainer_state.json`` of the Hugging Face Trainer, and other JSON documents of metrics.

Understood are a ``log_history``, a list of rows, a mapping of metric to values (a Keras history),
and an exported list of ``{"key", "value", "step"}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from nabla_core.errors import InputError

from .block import Block, Row, blocks_of_rows
from .flattening import flat_row
from .lines import open_bytes, text_encoding
from .notes import Notes

__all__ = ["planned_steps", "read_blocks", "sniff"]

_MAX_BYTES = 128 * 1024 * 1024
_HISTORIES = ("log_history", "history", "metrics", "logs", "log", "records", "data", "rows")
_SUMMARY_KEYS = frozenset({"train_runtime", "train_samples_per_second", "train_steps_per_second"})
_SUMMARY_FACTS = _SUMMARY_KEYS | {"train_loss", "total_flos"}


def read_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a JSON document.

    Raises:
        InputError: it is too large, no JSON, or holds no rows of metrics.
    """
    rows = _find_rows(_load(path))
    if rows is None:
        raise InputError(f"{path}: holds no list of metrics (a log_history, rows or a history)")
    yield from blocks_of_rows(_without_summaries(rows, notes))


def sniff(head: bytes) -> float:
    """Return how surely these first bytes are a JSON document of metrics."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] not in (b"{", b"["):
        return 0.0
    if b'"log_history"' in head:
        return 1.0
    first = start.split(b"\n", 1)[0].strip()
    whole = first.startswith(b"{") and first.endswith(b"}") and b"\n" in start
    return 0.3 if whole else 0.5


def planned_steps(path: Path) -> int | None:
    """Return the steps that a Trainer was told to make, if the file says so."""
    found = _load(path)
    planned = found.get("max_steps") if isinstance(found, Mapping) else None
    return planned if isinstance(planned, int) and planned > 0 else None


def _load(path: Path) -> object:
    with open_bytes(path) as stream:
        content = stream.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise InputError(f"{path}: is a JSON document above {_MAX_BYTES} bytes; write JSON lines")
    try:
        return json.loads(content.decode(text_encoding(content), "replace"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is no JSON: {error}") from error


def _find_rows(document: object) -> list[Row] | None:
    if isinstance(document, list):
        dicts = [item for item in document if isinstance(item, Mapping)]
        return _keyed_rows(dicts) or [flat_row(item) for item in dicts] or None
    if not isinstance(document, Mapping):
        return None
    stepped = _stepped_rows(document)
    if stepped:
        return stepped
    for key in _HISTORIES:
        inner = document.get(key)
        if isinstance(inner, (list, Mapping)) and inner:
            found = _find_rows(inner)
            if found:
                return found
    return _series_rows(document)


def _keyed_rows(items: list[Mapping[str, object]]) -> list[Row] | None:
    """Rows of ``{"key": …, "value": …, "step": …}``, sorted by step."""
    if not items or not all({"key", "value"} <= item.keys() for item in items):
        return None
    rows = []
    for item in items:
        named = {str(item["key"]): item["value"], "step": item.get("step")}
        rows.append(flat_row(named))
    return sorted(rows, key=lambda row: row.get("step", 0.0))


def _stepped_rows(document: Mapping[str, object]) -> list[Row]:
    """Rows of ``{"loss": {"steps": [0, 10], "values": [1.0, 0.9]}}``."""
    rows: dict[float, dict[str, object]] = {}
    for name, series in document.items():
        if not isinstance(series, Mapping):
            continue
        steps, values = series.get("steps"), series.get("values")
        if isinstance(steps, list) and isinstance(values, list):
            for step, value in zip(steps, values, strict=False):
                if isinstance(step, (int, float)):
                    rows.setdefault(float(step), {"step": step})[str(name)] = value
    return [flat_row(rows[step]) for step in sorted(rows)]


def _series_rows(document: Mapping[str, object]) -> list[Row] | None:
    """Rows of ``{"loss": [1.0, 0.9], "val_loss": [1.1, 1.0]}``."""
    series = {
        str(name): values
        for name, values in document.items()
        if isinstance(values, list) and values and not isinstance(values[0], (list, Mapping))
    }
    if not series:
        return None
    length = max(len(values) for values in series.values())
    return [
        flat_row({name: values[place] for name, values in series.items() if place < len(values)})
        for place in range(length)
    ]


def _without_summaries(rows: list[Row], notes: Notes) -> Iterator[Row]:
    for row in rows:
        if _SUMMARY_KEYS & row.keys():
            notes.add("a summary row of the Trainer was left out")
            row = {name: value for name, value in row.items() if name not in _SUMMARY_FACTS}
        yield row
