"""Which format a file has: by what it holds, then by how it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nabla_core.errors import InputError

from . import (
    boxes,
    event_file,
    event_folder,
    json_lines,
    metric_folder,
    parquet,
    table,
    text_log,
    trainer_state,
)
from .block import Block
from .lines import head_of, is_binary, text_encoding
from .notes import Notes

__all__ = ["EVENT_FOLDER", "FORMATS", "METRIC_FOLDER", "Format", "format_of"]

_LEAST = 0.1
_NAMED = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A kind of file.

    Attributes:
        name: how messages call it.
        suffixes: usual endings.
        sniff: how surely first bytes are of this kind, 0 to 1.
        read: yields the blocks of a file.
        is_text: whether binary files are ruled out.
    """

    name: str
    suffixes: tuple[str, ...]
    sniff: Callable[[bytes], float]
    read: Callable[[Path, Notes], Iterator[Block]]
    is_text: bool = True


FORMATS = (
    Format(
        name="TensorBoard events",
        suffixes=(".tfevents",),
        sniff=event_file.sniff,
        read=event_file.read_blocks,
        is_text=False,
    ),
    Format(
        name="parquet",
        suffixes=(".parquet", ".pq"),
        sniff=parquet.sniff,
        read=parquet.read_blocks,
        is_text=False,
    ),
    Format(
        name="JSON lines",
        suffixes=(".jsonl", ".ndjson"),
        sniff=json_lines.sniff,
        read=json_lines.read_blocks,
    ),
    Format(
        name="JSON",
        suffixes=(".json",),
        sniff=trainer_state.sniff,
        read=trainer_state.read_blocks,
    ),
    Format(
        name="MLflow metric",
        suffixes=(),
        sniff=metric_folder.sniff,
        read=metric_folder.read_file_blocks,
    ),
    Format(
        name="table", suffixes=(".csv", ".tsv", ".dat"), sniff=table.sniff, read=table.read_blocks
    ),
    Format(
        name="text log",
        suffixes=(".log", ".txt", ".out", ".err"),
        sniff=text_log.sniff,
        read=text_log.read_blocks,
    ),
    Format(name="boxes", suffixes=(".log", ".txt"), sniff=boxes.sniff, read=boxes.read_blocks),
)
METRIC_FOLDER = Format(
    name="MLflow metrics", suffixes=(), sniff=lambda head: 0.0, read=metric_folder.read_blocks
)


EVENT_FOLDER = Format(
    name="TensorBoard events",
    suffixes=(),
    sniff=lambda head: 0.0,
    read=event_folder.read_blocks,
)


def format_of(path: Path) -> Format:
    """Return the format of a file, or of a folder of metrics.

    Raises:
        InputError: it cannot be read, or is of no known format.
    """
    if path.is_dir():
        if metric_folder.is_metric_folder(path):
            return METRIC_FOLDER
        if event_folder.is_event_folder(path):
            return EVENT_FOLDER
        raise InputError(f"{path}: is a folder without logs")
    if path.suffix == ".wandb":
        raise InputError(f"{path}: is W&B's own binary log; export the run's history as CSV")
    head = head_of(path)
    binary = is_binary(head)
    if not binary:
        head = head.decode(text_encoding(head), "replace").encode()
    scored = [
        (form.sniff(head) + _NAMED * _is_named(path, form), form)
        for form in FORMATS
        if not (binary and form.is_text)
    ]
    score, best = max(scored, key=lambda item: item[0])
    if score > _LEAST:
        return best
    if binary:
        known = ", ".join(form.name for form in FORMATS)
        raise InputError(f"{path}: is binary and of no known format ({known})")
    raise InputError(f"{path}: holds no table, JSON or lines with a loss")


def _is_named(path: Path, form: Format) -> bool:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix != ".gz"]
    if ".tfevents" in suffixes:  # followed by a time, a host and a process
        return ".tfevents" in form.suffixes
    return bool(suffixes) and suffixes[-1] in form.suffixes
