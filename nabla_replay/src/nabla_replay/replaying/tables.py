"""Fingerprints a program in the layout of a recorded run, whatever the program has or lacks."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import cast

import torch

from nabla_core.errors import UsageError

from ..capturing.opening import TABLES, WHOLE, tables_of
from ..errors import RecordError
from ..fingerprints.fingerprinter import Algorithm, Fingerprinter
from ..fingerprints.layout import Extent
from ..fingerprints.table import Component, Entry, entries_of
from ..store.reader import RunReader
from ..store.tables import Tables, TensorInfo
from .program import Program

__all__ = ["fingerprinter_for", "recorded_extents"]

_ORDER: tuple[Component, ...] = ("parameter", "buffer", "gradient", "extra")


def fingerprinter_for(
    reader: RunReader, program: Program, rank: int = 0, segment: int = 0
) -> Fingerprinter:
    """Return what hashes the tensors of a program as those of a run were hashed.

    Extra state that the program lacks has no value; it stays in the layout.

    Raises:
        RecordError: the run was hashed in a way that this version does not know.
        UsageError: the model has tensors of other names or shapes.
    """
    algorithm = reader.header.hash_algorithm
    if algorithm not in ("crc32", "mlh64"):
        raise RecordError(f"{reader.folder}: fingerprints by {algorithm!r} cannot be compared")
    tables = reader.tables(rank, segment)
    here = entries_of(program.parts.model, program.parts.modules)
    _check(tables, tables_of(here))
    known = {(entry.component, entry.name): entry for entry in here}
    names, extents = recorded_extents(tables)
    entries = [known.get(key, Entry(key[0], key[1], {}, "")) for key in names]
    return Fingerprinter(entries, extents, cast("Algorithm", algorithm))


def recorded_extents(tables: Tables) -> tuple[list[tuple[Component, str]], list[Extent]]:
    """Return component and name of everything that is fingerprinted, in order, and its size.

    Raises:
        RecordError: a tensor has an unknown dtype.
    """
    rows = [
        (component, info)
        for component in _ORDER
        for info in tables.get(TABLES["parameter" if component == "gradient" else component], ())
    ]
    return [(component, info.name) for component, info in rows], [_extent(i) for _, i in rows]


def _extent(info: TensorInfo) -> Extent:
    if info.dtype.endswith(WHOLE):
        return Extent(0, whole=True)
    dtype = getattr(torch, info.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise RecordError(f"tensor {info.name!r} has the unknown dtype {info.dtype[:40]!r}")
    return Extent(prod(info.shape) * dtype.itemsize)


def _check(recorded: Tables, here: Tables) -> None:
    for table in ("parameters", "buffers"):
        odd = next(_differing(recorded.get(table, ()), here[table]), None)
        if odd is not None:
            raise UsageError(f"replay: the program has other {table} than the recorded one: {odd}")


def _differing(there: tuple[TensorInfo, ...], here: tuple[TensorInfo, ...]) -> Iterator[str]:
    for one, other in zip(there, here, strict=False):
        if one != other:
            yield f"{_told(one)} was recorded where it has {_told(other)}"
    if len(there) != len(here):
        yield f"{len(there)} were recorded, it has {len(here)}"


def _told(info: TensorInfo) -> str:
    return f"{info.name} {list(info.shape)} {info.dtype}"
