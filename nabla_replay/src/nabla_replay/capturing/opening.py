"""Opens the run that a capture writes: a new one, another rank's part, or one to go on with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import torch
from torch.nn.parameter import is_lazy

from nabla_core import __version__
from nabla_core.artifacts.strict_json import JsonObject
from nabla_core.errors import UsageError
from nabla_core.issue import Issue

from ..environment.gathering import gather_settings
from ..fingerprints.fingerprinter import Algorithm, Fingerprinter, algorithm_for
from ..fingerprints.table import Component, Entry, entries_of, extent_of
from ..store.header import RunHeader
from ..store.tables import Tables, TensorInfo
from ..store.writer import RunWriter, SegmentStart, WriterOptions
from .options import CaptureOptions
from .owners import FOUND, OWNERS, owned_names
from .pace import PARTS
from .parts import Parts
from .place import Place, find_place, intended_world_size, run_folder

__all__ = ["TABLES", "WHOLE", "make_fingerprinter", "open_writer", "tables_of"]

TABLES: dict[Component, str] = {
    "parameter": "parameters",
    "buffer": "buffers",
    "extra": "extra",
}
"""Component to the table that lists its tensors; gradients go by the table of the parameters."""

WHOLE = " whole"
"""Behind the dtype of a tensor that is always hashed as a whole: complex, sparse, a subclass."""


def make_fingerprinter(parts: Parts, algorithm: Algorithm | None = None) -> Fingerprinter:
    """Return what hashes the tensors of a program.

    Args:
        parts: the program.
        algorithm: by default the quickest one for where the tensors are now.
    """
    entries = entries_of(parts.model, parts.modules)
    extents = [extent_of(entry) for entry in entries]
    return Fingerprinter(entries, extents, algorithm or algorithm_for(entries))


def tables_of(entries: Sequence[Entry]) -> Tables:
    """Return names, shapes and dtypes for the header."""
    return {
        table: tuple(_info(entry) for entry in entries if entry.component == component)
        for component, table in TABLES.items()
    }


def open_writer(
    parts: Parts,
    fingerprinter: Fingerprinter,
    options: CaptureOptions,
    on_issue: Callable[[Issue], None],
) -> RunWriter:
    """Open the run to write to.

    Raises:
        UsageError: the run to go on with has tensors of other names or shapes.
        InputError: the folder cannot be written, or another process writes there.
    """
    now_s = time.time()
    place = find_place(now_s)
    tables = tables_of(fingerprinter.entries)
    settings = cast(
        "JsonObject",
        gather_settings(
            parts.model, parts.loader, world_size=max(place.world_size, intended_world_size())
        ),
    )
    start = SegmentStart(
        rank=place.rank,
        world_size=place.world_size,
        started_s=now_s,
        environment=settings,
        tables=tables,
    )
    writing = WriterOptions(fsync_s=options.fsync_s, on_issue=on_issue)
    if options.resume is not None:
        return _resume(Path(options.resume), fingerprinter.algorithm, start, writing)
    if place.rank:
        return RunWriter.join(run_folder(options.root, place), segment=start, options=writing)
    header = _header(place, fingerprinter.algorithm, start, (parts, options))
    return RunWriter.create(Path(options.root), header, segment=start, options=writing)


def _resume(
    folder: Path, algorithm: Algorithm, start: SegmentStart, options: WriterOptions
) -> RunWriter:
    writer = RunWriter.resume(folder, segment=start, options=options)
    if writer.header.hash_algorithm != algorithm:
        writer.close("refused")
        raise UsageError(
            f"capture(resume={str(folder)!r}): its tensors are hashed with "
            f"{writer.header.hash_algorithm}, those of this program with {algorithm}; "
            "capture into a run of its own"
        )
    return writer


def _header(
    place: Place, algorithm: Algorithm, start: SegmentStart, what: tuple[Parts, CaptureOptions]
) -> RunHeader:
    parts, options = what
    return RunHeader(
        run_id=place.run_id,
        created_s=start.started_s,
        hash_algorithm=algorithm,
        rotation=1 if options.budget is None else PARTS[-1],
        tables=start.tables or {},
        environment=start.environment,
        policy={
            "checkpoint_every": options.checkpoint_every,
            "budget": None if options.budget is None else str(options.budget),
            "trace_modules": options.trace_modules,
            **_owners(parts),
            **({FOUND: list(parts.found)} if parts.found else {}),
        },
        versions={"nabla-replay": __version__, "torch": str(torch.__version__)},
    )


def _owners(parts: Parts) -> JsonObject:
    """Say which parameters each of several optimizers holds."""
    if len(parts.optimizers) < 2:
        return {}
    return {OWNERS: [list(names) for names in owned_names(parts)]}


def _info(entry: Entry) -> TensorInfo:
    tensor = entry.owner.get(entry.key)
    if tensor is None or is_lazy(tensor):
        return TensorInfo(name=entry.name, shape=(), dtype=f"lazy{WHOLE}")
    dtype = str(tensor.dtype).removeprefix("torch.") + (WHOLE if extent_of(entry).whole else "")
    return TensorInfo(name=entry.name, shape=tuple(tensor.shape), dtype=dtype)
