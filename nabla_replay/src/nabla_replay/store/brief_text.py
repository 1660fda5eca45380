"""The record of a step of which only the loss is worth its time: written by hand, and quickly."""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import NamedTuple

from .brief_value import brief_value
from .entries import Entry, StepEntry, hex_text

__all__ = ["BriefEntry", "brief_text", "step_of"]


class BriefEntry(NamedTuple):
    """A step in brief; it is read as a :class:`.entries.StepEntry`.

    Attributes:
        step: as the program counts.
        loss: exact value.
        batch: indices of the samples, or a digest of the batch.
        signals: other scalars.
        place: in the data, ``epoch:position``.
        anchor: name of the vector that holds one whole tensor; empty for none.
        packed: its fingerprint.
    """

    step: int
    loss: float
    batch: tuple[int, ...] | str | None
    signals: Mapping[str, float] | None
    place: str | None
    anchor: str
    packed: bytes

    @property
    def kind(self) -> str:
        """Kind of the record."""
        return "step"


def brief_text(sequence: int, entry: BriefEntry) -> bytes:
    """Return the JSON of a record and its number.

    Args:
        sequence: number of the record.
        entry: the step.
    """
    number, loss, batch, signals, place, anchor, packed = entry
    more = "" if place is None else f',"d":{{"l":"{place}"}}'
    if batch is not None:
        more = f'{more},"i":{quoted(batch) if isinstance(batch, str) else [*batch]}'
    if signals:
        texts = [f'{quoted(name)}:"{hex_text(one)}"' for name, one in signals.items()]
        more = f'{more},"x":{{{",".join(texts)}}}'
    value = brief_value(anchor, loss, packed)
    return f'{{"n":{sequence},"k":"step","s":{number},"q":"{value}"{more}}}'.encode("ascii")


def step_of(entry: Entry | BriefEntry) -> int | None:
    """Return the step that a record is of, if it is the record of one."""
    return entry.step if isinstance(entry, (StepEntry, BriefEntry)) else None
