"""The tensors that a run fingerprints, by table and in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from nabla_core.artifacts.strict_json import JsonObject, JsonValue

from ..errors import RecordError

__all__ = ["Tables", "TensorInfo", "tables_from_json", "tables_to_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """Name, shape and dtype (as torch spells it, without ``torch.``) of one tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str


Tables: TypeAlias = Mapping[str, tuple[TensorInfo, ...]]
"""For each table, e.g. ``parameters``, its tensors in the order of the fingerprints."""


def tables_to_json(tables: Tables) -> JsonObject:
    """Return the tables as ``{table: [[name, shape, dtype], ...]}``."""
    return {
        table: [[info.name, list(info.shape), info.dtype] for info in infos]
        for table, infos in tables.items()
    }


def tables_from_json(value: JsonValue) -> Tables:
    """Read :func:`tables_to_json`.

    Raises:
        RecordError: a part has the wrong form.
    """
    if not isinstance(value, dict):
        raise RecordError("the tables are no object")
    return {table: tuple(_infos(table, rows)) for table, rows in value.items()}


def _infos(table: str, rows: JsonValue) -> list[TensorInfo]:
    if not isinstance(rows, list):
        raise RecordError(f"table {table!r} is no list")
    found = []
    for row in rows:
        match row:
            case [str(name), list(shape), str(dtype)]:
                sizes = [size for size in shape if type(size) is int and size >= 0]
                if len(sizes) == len(shape):
                    found.append(TensorInfo(name=name, shape=tuple(sizes), dtype=dtype))
                    continue
        raise RecordError(f"table {table!r} has a row that is no [name, shape, dtype]")
    return found
