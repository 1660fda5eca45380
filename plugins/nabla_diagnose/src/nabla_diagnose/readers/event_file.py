"""Scalars of TensorBoard event files, without TensorFlow.

Both ways of writing a scalar are understood: a simple value (torch, tensorboardX) and a tensor of
one element (TensorFlow 2). Images, histograms, graphs and larger tensors are skipped.

Tags may count differently (training by step, validation by epoch). The tag of the loss sets the
step; a scalar whose own count is behind is taken at the step at which it was written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .block import Block, blocks_of_rows
from .naming import Quantity, name_of
from .notes import Notes
from .protobuf import Field, WireError, fields_of
from .tfrecord import masked_crc, read_records

__all__ = ["Scalar", "read_blocks", "read_scalars", "rows_of_scalars", "sniff"]

_FLOAT, _DOUBLE, _INT32, _INT64, _HALF, _BFLOAT16 = 1, 2, 3, 9, 19, 14
_CODES = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q", _HALF: "<e"}
_LONGEST_VALUE = 16


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number of an event file."""

    tag: str
    step: int
    time_s: float
    value: float


def sniff(head: bytes) -> float:
    """Return how surely these first bytes are an event file."""
    if len(head) < 12:
        return 0.0
    return float(masked_crc(head[:8]) == struct.unpack("<I", head[8:12])[0])


def read_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of one event file.

    Raises:
        InputError: it cannot be read or is no event file.
    """
    yield from blocks_of_rows(rows_of_scalars(read_scalars(path, notes)))


def read_scalars(path: Path, notes: Notes) -> Iterator[Scalar]:
    """Yield the scalars of an event file in the order in which they were written.

    Raises:
        InputError: it cannot be read or is no event file.
    """
    for payload in read_records(path, notes):
        try:
            yield from _scalars(payload)
        except (WireError, struct.error):
            notes.add("an event could not be decoded")


def rows_of_scalars(scalars: Iterator[Scalar]) -> Iterator[dict[str, float]]:
    """Yield rows with a ``step``; scalars of one step form a row."""
    row: dict[str, float] = {}
    step = -1
    last_of: dict[str, int] = {}
    lead = ""
    for scalar in scalars:
        if not lead or (scalar.tag != lead and _leads(scalar.tag) < _leads(lead)):
            lead = scalar.tag
        restarted = scalar.tag == lead and scalar.step < last_of.get(scalar.tag, -1)
        behind = scalar.step < step and not restarted
        last_of[scalar.tag] = scalar.step
        if (behind and scalar.tag not in row) or (scalar.step == step and scalar.tag not in row):
            row[scalar.tag] = scalar.value
            continue
        if row:
            yield {**row, "step": float(step)}
        if restarted:
            last_of = {scalar.tag: scalar.step}
        step = scalar.step if not behind else step
        row = {scalar.tag: scalar.value, "wall_time": scalar.time_s}
    if row:
        yield {**row, "step": float(step)}


def _leads(tag: str) -> int:
    name = name_of(tag)
    order = (Quantity.LOSS, Quantity.LOSS_PART, Quantity.GRAD_NORM, Quantity.LR)
    place = order.index(name.quantity) if name.quantity in order else len(order)
    return 2 * place + (name.split.value in ("val", "test"))


def _scalars(payload: bytes) -> Iterator[Scalar]:
    time_s, step = 0.0, 0
    summaries = []
    for found in fields_of(payload):
        if found.number == 1:
            time_s = found.number_value
        elif found.number == 2 and isinstance(found.value, int):
            step = found.value if found.value < 1 << 63 else found.value - (1 << 64)
        elif found.number == 5:
            summaries.append(found.content)
    for summary in summaries:
        for found in fields_of(summary):
            if found.number == 1:
                scalar = _scalar(found.content, step, time_s)
                if scalar is not None:
                    yield scalar


def _scalar(message: bytes, step: int, time_s: float) -> Scalar | None:
    tag, value = "", None
    for found in fields_of(message):
        if found.number == 1:
            tag = found.content.decode("utf-8", "replace")
        elif found.number == 2:
            value = found.number_value
        elif found.number == 8:
            value = _tensor(found.content)
    return None if value is None or not tag else Scalar(tag, step, time_s, value)


def _tensor(message: bytes) -> float | None:
    """Return the number of a tensor of one element, else ``None``."""
    kind, content = 0, b""
    values: list[Field] = []
    for found in fields_of(message):
        if found.number == 1 and isinstance(found.value, int):
            kind = found.value
        elif found.number == 2 and _elements(found.content) != 1:
            return None
        elif found.number == 4:
            content = found.content
        elif found.number in (5, 6, 7, 10, 13):
            values.append(found)
    if kind not in (*_CODES, _BFLOAT16):
        return None
    return _packed(kind, content) if content else _listed(kind, values)


def _listed(kind: int, values: list[Field]) -> float | None:
    if len(values) != 1 or kind == _BFLOAT16:
        return None
    found = values[0]
    if isinstance(found.value, int):
        if kind == _HALF:
            return float(struct.unpack("<e", struct.pack("<H", found.value & 0xFFFF))[0])
        return float(found.value if found.value < 1 << 63 else found.value - (1 << 64))
    if kind in (_FLOAT, _DOUBLE):
        return found.number_value
    packed = list(fields_of(b"\x08" + found.value)) if found.value else []
    return _listed(kind, packed)


def _packed(kind: int, content: bytes) -> float | None:
    if kind == _BFLOAT16 and len(content) == 2:
        return float(struct.unpack("<f", b"\0\0" + content)[0])
    code = _CODES.get(kind)
    if code is None or len(content) != struct.calcsize(code):
        return None
    return float(struct.unpack(code, content)[0])


def _elements(shape: bytes) -> int:
    """Return the number of elements of a shape; 1 for a scalar."""
    elements = 1
    for dimension in fields_of(shape):
        if dimension.number == 2:
            for size in fields_of(dimension.content):
                if size.number == 1 and isinstance(size.value, int):
                    elements *= size.value
    return elements
