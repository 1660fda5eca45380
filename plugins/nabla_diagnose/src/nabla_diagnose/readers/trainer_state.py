"""``trainer_state.json`` of the Hugging Face Trainer, and other JSON documents of metrics.

Understood are a ``log_history``, a list of rows, a mapping of metric to values (a Keras history),
an exported list of ``{"key", "value", "step"}``, and a curve of ``[time, step, value]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from nabla_core.errors import InputError

from .block import Block, Row, blocks_of_rows
from .file_tag import tag_of_file
from .flattening import flat_row
from .lines import open_bytes, text_encoding
from .notes import Notes

__all__ = ["planned_steps", "read_blocks", "sniff"]

_MAX_BYTES = 128 * 1024 * 1024
_HISTORIES = ("log_history", "history", "metrics", "logs", "log", "records", "data", "rows")
_KEYED = (("key", "value"), ("metricName", "metricValue"), ("metric", "value"), ("tag", "value"))
_ALONG, _UP = ("steps", "step", "x", "iterations", "epochs"), ("values", "value", "y")
_MAX_DEPTH = 5
_SUMMARY_KEYS = frozenset({"train_runtime", "train_samples_per_second", "train_steps_per_second"})
_SUMMARY_FACTS = _SUMMARY_KEYS | {"train_loss", "total_flos"}


def read_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a JSON document.

    Raises:
        InputError: it is too large, no JSON, or holds no rows of metrics.
    """
    document = _load(path)
    rows = _find_rows(document) or _triples(document, path)
    if rows is None:
        raise InputError(f"{path}: holds no list of metrics (a log_history, rows or a history)")
    yield from blocks_of_rows(_without_summaries(rows, notes))


def sniff(head: bytes) -> float:
    """Return how surely these first bytes are a JSON document of metrics."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    inner = start[1:].lstrip()[:1]
    if start[:1] not in (b"{", b"[") or (start[:1] == b"[" and inner not in (b"{", b"[")):
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
        return (
            _keyed_rows(dicts)
            or _stepped_rows(document)
            or [flat_row(item) for item in dicts]
            or None
        )
    if not isinstance(document, Mapping):
        return None
    stepped = _stepped_rows(document)
    if stepped:
        return stepped
    counted = _counted_rows(document)
    if counted:
        return counted
    unnamed = [key for key, inner in document.items() if _is_table(inner)]
    for key in (*_HISTORIES, *unnamed):
        inner = document.get(key)
        if isinstance(inner, (list, Mapping)) and inner:
            found = _find_rows(inner)
            if found:
                return found
    return _series_rows(_flat_lists(document, "", 0))


def _triples(document: object, path: Path) -> list[Row] | None:
    """Rows of ``[[wall time, step, value], ...]``: a curve that is called after its file."""
    tag = tag_of_file(path)
    if tag is None or not isinstance(document, list):
        return None
    rows = [item for item in document if isinstance(item, list) and len(item) == 3]
    if len(rows) < len(document):
        return None
    return [flat_row(dict(zip(("wall_time", "step", tag), row, strict=True))) for row in rows]


def _is_table(found: object) -> bool:
    return isinstance(found, list) and len(found) > 1 and isinstance(found[0], Mapping)


def _counted_rows(document: Mapping[str, object]) -> list[Row]:
    """Rows of ``{"0": {"loss": 1.0}, "10": {"loss": 0.9}}``, by their steps."""
    items = [(key, row) for key, row in document.items() if isinstance(row, Mapping)]
    if len(items) < 2 or len(items) < len(document) or not all(k.isdecimal() for k, _ in items):
        return []
    ordered = sorted(items, key=lambda item: int(item[0]))
    return [flat_row({"step": int(key), **row}) for key, row in ordered]


def _flat_lists(document: Mapping[str, object], prefix: str, depth: int) -> dict[str, object]:
    """Return the lists of a nested mapping; ``{"train": {"loss": […]}}`` gives ``train.loss``."""
    found: dict[str, object] = {}
    for key, inner in document.items():
        if isinstance(inner, Mapping) and depth < _MAX_DEPTH:
            found.update(_flat_lists(inner, f"{prefix}{key}.", depth + 1))
        else:
            found[f"{prefix}{key}"] = inner
    return found


def _keyed_rows(items: list[Mapping[str, object]]) -> list[Row] | None:
    """Rows of ``{"key": …, "value": …, "step": …}``, sorted by step."""
    for key, value in _KEYED:
        if items and all({key, value} <= item.keys() for item in items):
            break
    else:
        return None
    rows = []
    for item in items:
        named = {str(item[key]): item[value], "step": item.get("step", item.get("iteration"))}
        rows.append(flat_row(named))
    return sorted(rows, key=lambda row: row.get("step", 0.0))


def _stepped_rows(document: object) -> list[Row]:
    """Rows of curves such as ``{"loss": {"steps": [0, 10], "values": [1.0, 0.9]}}``."""
    rows: dict[float, dict[str, object]] = {}
    for name, steps, values in _curves(document, (), 0):
        for step, value in zip(steps, values, strict=False):
            if isinstance(step, (int, float)):
                rows.setdefault(float(step), {"step": step})[name] = value
    return [flat_row(rows[step]) for step in sorted(rows)]


def _curves(
    found: object, path: tuple[str, ...], depth: int
) -> Iterator[tuple[str, list[object], list[object]]]:
    """Yield name, steps and values of every curve; a curve in a list is called by its ``name``."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(found, list):
        for item in found:
            if isinstance(item, Mapping) and isinstance(item.get("name"), str):
                yield from _curves(item, (*path, str(item["name"])), depth + 1)
    elif isinstance(found, Mapping):
        steps = next((found[key] for key in _ALONG if isinstance(found.get(key), list)), None)
        values = next((found[key] for key in _UP if isinstance(found.get(key), list)), None)
        if path and isinstance(steps, list) and isinstance(values, list):
            yield "/".join(path), steps, values
            return
        for key, inner in found.items():
            if isinstance(inner, (Mapping, list)):
                yield from _curves(inner, (*path, str(key)), depth + 1)


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
