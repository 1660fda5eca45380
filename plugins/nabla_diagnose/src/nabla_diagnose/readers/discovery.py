"""From what a person names (files, folders, patterns) to logs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path

from nabla_core.errors import InputError

from .event_folder import is_event_folder, split_folders
from .metric_folder import is_metric_folder

__all__ = ["FoundLog", "find_logs"]

_SUFFIXES = frozenset(
    {".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".log", ".txt", ".out", ".parquet", ".pq"}
)
_FOREIGN = frozenset({"node_modules", "__pycache__", "site-packages", "venv", "artifacts"})
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_MAX_FILES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """A log to read.

    Attributes:
        path: a file, or a folder that is one log.
        named: whether the person named it; one that was found in a folder may be no log at all.
    """

    path: Path
    named: bool


def find_logs(arguments: Iterable[str]) -> list[FoundLog]:
    """Return the logs that files, folders and patterns mean, each once.

    Of a Trainer's checkpoints, which repeat the log up to their step, only the last counts.

    Raises:
        InputError: there is no such file or folder, or a pattern matches nothing.
    """
    found: dict[Path, FoundLog] = {}
    for text in arguments:
        for path in _matches(text):
            for log in _logs(path, is_pattern=path != Path(text)):
                found.setdefault(log.path, log)
    return _last_checkpoints(list(found.values()))


def _matches(text: str) -> list[Path]:
    if not text.strip():
        raise InputError("an empty name means no log; the present folder is .")
    if Path(text).exists():
        return [Path(text)]
    if not has_magic(text):
        raise InputError(f"{text}: no such file or folder")
    paths = [Path(found) for found in sorted(glob(text, recursive=True))]
    if not paths:
        raise InputError(f"{text}: matches no file")
    return paths


def _logs(path: Path, is_pattern: bool) -> Iterator[FoundLog]:
    if not path.is_dir():
        yield FoundLog(path=path, named=not is_pattern)
        return
    for number, found in enumerate(_walk(path)):
        if number >= _MAX_FILES:
            raise InputError(f"{path}: has more than {_MAX_FILES} files; name a smaller folder")
        yield FoundLog(path=found, named=False)


def _walk(top: Path) -> Iterator[Path]:
    """Yield what may be a log below a folder, in a fixed order, following no links."""
    for folder, folders, files in os.walk(top, followlinks=False):
        here = Path(folder)
        if is_metric_folder(here):
            folders.clear()
            yield here
            continue
        if is_event_folder(here):
            splits = {folder.name for folder, _ in split_folders(here)}
            folders[:] = [name for name in folders if name not in splits]  # they belong to it
            yield here
        folders[:] = sorted(f for f in folders if f not in _FOREIGN and not f.startswith("."))
        for name in sorted(files):
            suffixes = [suffix for suffix in Path(name).suffixes if suffix != ".gz"]
            is_log = bool(suffixes) and suffixes[-1].lower() in _SUFFIXES
            if is_log and "tfevents" not in name and not (here / name).is_symlink():
                yield here / name


def _last_checkpoints(logs: list[FoundLog]) -> list[FoundLog]:
    best: dict[Path, float] = {}
    for log in logs:
        place = _checkpoint(log)
        if place is not None:
            best[place[0]] = max(best.get(place[0], -1.0), place[1])
    kept = []
    for log in logs:
        place = _checkpoint(log)
        if place is None or place[1] == best[place[0]]:
            kept.append(log)
    return kept


def _checkpoint(log: FoundLog) -> tuple[Path, float] | None:
    """Return the run's folder and the step of a ``trainer_state.json`` that was not named."""
    if log.named or log.path.name != "trainer_state.json":
        return None
    folder = log.path.parent
    found = _CHECKPOINT.fullmatch(folder.name)
    return (folder.parent, float(found[1])) if found else (folder, float("inf"))
