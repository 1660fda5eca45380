"""What a log holds: one frozen type per kind of record, and its form on disk.

Floats are written as ``float.hex()``: exact, and NaN and the infinities have a spelling.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from nabla_core.artifacts.strict_json import JsonObject, JsonValue

from ..errors import RecordError
from .brief_value import read_brief_value
from .fields import (
    take_bytes,
    take_count,
    take_float,
    take_list,
    take_object,
    take_text,
    take_texts,
)
from .short_names import long, short
from .tables import Tables, tables_from_json, tables_to_json

__all__ = [
    "ANCHOR",
    "CheckpointEntry",
    "EndEntry",
    "Entry",
    "EpochEntry",
    "GapEntry",
    "NoteEntry",
    "SegmentEntry",
    "StepEntry",
    "entry_from_body",
    "hex_text",
]

ANCHOR = "@"
"""Begins the name of a vector that holds the fingerprint of one whole tensor, by its index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEntry:
    """One optimizer step.

    Attributes:
        step: as the program counts.
        loss: exact value, if it was seen.
        batch: indices of the samples, or a digest of the batch.
        signals: other scalars, e.g. ``lr`` and ``grad_norm``.
        digests: by component (``rng``, ``optimizer``, ``scheduler``, ``scaler``, ``extra``,
            ``loader``, ...): digest of its state after the step.
        vectors: by table (``parameters``, ``buffers``, ``gradients``, ...): packed fingerprints, in
            the order of the table.
    """

    kind: ClassVar[str] = "step"
    step: int
    loss: float | None = None
    batch: tuple[int, ...] | str | None = None
    signals: Mapping[str, float] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    vectors: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def is_brief(self) -> bool:
        """Whether it says nothing about the state beside one small parameter, the anchor."""
        return "rng" not in self.digests and all(name.startswith(ANCHOR) for name in self.vectors)

    def to_body(self) -> JsonObject:
        """Return the record without what is absent."""
        body: JsonObject = {"s": self.step}
        if self.loss is not None:
            body["l"] = hex_text(self.loss)
        if self.batch is not None:
            body["i"] = self.batch if isinstance(self.batch, str) else list(self.batch)
        if self.signals:
            body["x"] = {name: hex_text(value) for name, value in self.signals.items()}
        if self.digests:
            body["d"] = {short(name): text for name, text in self.digests.items()}
        if self.vectors:
            body["v"] = {
                short(name): base64.b64encode(packed).decode("ascii")
                for name, packed in self.vectors.items()
            }
        return body

    @classmethod
    def from_body(cls, body: JsonObject) -> StepEntry:
        """Read :meth:`to_body`.

        Raises:
            RecordError: a part has the wrong form.
        """
        signals, vectors = take_object(body, "x"), take_object(body, "v")
        digests = take_texts(body, "d")
        loss = take_float(body, "l") if "l" in body else None
        kept = {long(name): take_bytes(vectors, name) for name in vectors}
        if "q" in body:
            anchor, loss, packed = read_brief_value(take_text(body, "q"))
            kept |= {anchor: packed} if anchor else {}
        return cls(
            step=take_count(body, "s"),
            loss=loss,
            batch=_batch(body) if "i" in body else None,
            signals={name: take_float(signals, name) for name in signals},
            digests={long(name): text for name, text in digests.items()},
            vectors=kept,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEntry:
    """The state from which an epoch's data follows: all random generators, and the loader.

    Attributes:
        epoch: 0-based.
        step: the step that comes next.
        state: packed by :func:`nabla_replay.codec.inline.pack`.
    """

    kind: ClassVar[str] = "epoch"
    epoch: int
    step: int
    state: JsonValue = None

    def to_body(self) -> JsonObject:
        """Return the record."""
        return {"e": self.epoch, "s": self.step, "state": self.state}

    @classmethod
    def from_body(cls, body: JsonObject) -> EpochEntry:
        """Read :meth:`to_body`; RecordError if a part has the wrong form."""
        return cls(epoch=take_count(body, "e"), step=take_count(body, "s"), state=body.get("state"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEntry:
    """A checkpoint that is complete and on disk. Without this record there is none.

    Attributes:
        step: last step that it contains.
        name: file under ``ckpt/``.
        size_bytes: of the whole file.
        crc32: of the whole file.
        sha256: of the whole file, hexadecimal.
    """

    kind: ClassVar[str] = "ckpt"
    step: int
    name: str
    size_bytes: int
    crc32: int
    sha256: str

    def to_body(self) -> JsonObject:
        """Return the record."""
        return {
            "s": self.step,
            "name": self.name,
            "bytes": self.size_bytes,
            "crc32": self.crc32,
            "sha256": self.sha256,
        }

    @classmethod
    def from_body(cls, body: JsonObject) -> CheckpointEntry:
        """Read :meth:`to_body`; RecordError if a part has the wrong form."""
        return cls(
            step=take_count(body, "s"),
            name=take_text(body, "name"),
            size_bytes=take_count(body, "bytes"),
            crc32=take_count(body, "crc32"),
            sha256=take_text(body, "sha256"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEntry:
    """The start of one process's part of a log: the first, or a resume.

    Attributes:
        number: 0-based.
        rank: of the process.
        world_size: processes of the training.
        started_s: wall clock, for people; nothing is ordered by it.
        environment: what decides whether a replay can be exact.
        tables: names of the fingerprinted tensors, where they differ from the header's.
        cut_bytes: torn bytes that were cut off the end of the log.
    """

    kind: ClassVar[str] = "head"
    number: int
    rank: int
    world_size: int
    started_s: float
    environment: JsonObject = field(default_factory=dict)
    tables: Tables | None = None
    cut_bytes: int = 0

    def to_body(self) -> JsonObject:
        """Return the record."""
        body: JsonObject = {
            "segment": self.number,
            "rank": self.rank,
            "world_size": self.world_size,
            "started": self.started_s.hex(),
            "environment": self.environment,
        }
        if self.tables is not None:
            body["tables"] = tables_to_json(self.tables)
        if self.cut_bytes:
            body["cut_bytes"] = self.cut_bytes
        return body

    @classmethod
    def from_body(cls, body: JsonObject) -> SegmentEntry:
        """Read :meth:`to_body`; RecordError if a part has the wrong form."""
        return cls(
            number=take_count(body, "segment"),
            rank=take_count(body, "rank"),
            world_size=take_count(body, "world_size"),
            started_s=take_float(body, "started"),
            environment=take_object(body, "environment"),
            tables=tables_from_json(body["tables"]) if "tables" in body else None,
            cut_bytes=take_count(body, "cut_bytes") if "cut_bytes" in body else 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GapEntry:
    """Steps that were not recorded, and why."""

    kind: ClassVar[str] = "gap"
    reason: str
    records: int = 0
    first_step: int | None = None
    last_step: int | None = None

    def to_body(self) -> JsonObject:
        """Return the record."""
        body: JsonObject = {"reason": self.reason, "records": self.records}
        for key, value in (("first", self.first_step), ("last", self.last_step)):
            if value is not None:
                body[key] = value
        return body

    @classmethod
    def from_body(cls, body: JsonObject) -> GapEntry:
        """Read :meth:`to_body`; RecordError if a part has the wrong form."""
        return cls(
            reason=take_text(body, "reason"),
            records=take_count(body, "records"),
            first_step=take_count(body, "first") if "first" in body else None,
            last_step=take_count(body, "last") if "last" in body else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteEntry:
    """Anything else, under a name of its own."""

    kind: ClassVar[str] = "note"
    name: str
    body: JsonValue = None

    def to_body(self) -> JsonObject:
        """Return the record."""
        return {"name": self.name, "body": self.body}

    @classmethod
    def from_body(cls, body: JsonObject) -> NoteEntry:
        """Read :meth:`to_body`; RecordError if a part has the wrong form."""
        return cls(name=take_text(body, "name"), body=body.get("body"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEntry:
    """The process left the run on purpose; a killed one leaves none."""

    kind: ClassVar[str] = "end"
    reason: str
    step: int | None = None

    def to_body(self) -> JsonObject:
        """Return the record."""
        body: JsonObject = {"reason": self.reason}
        if self.step is not None:
            body["s"] = self.step
        return body

    @classmethod
    def from_body(cls, body: JsonObject) -> EndEntry:
        """Read :meth:`to_body`; RecordError if a part has the wrong form."""
        step = take_count(body, "s") if "s" in body else None
        return cls(reason=take_text(body, "reason"), step=step)


Entry: TypeAlias = (
    StepEntry | EpochEntry | CheckpointEntry | SegmentEntry | GapEntry | NoteEntry | EndEntry
)
"""Any record."""

_TYPES: dict[str, type[Entry]] = {
    "step": StepEntry,
    "epoch": EpochEntry,
    "ckpt": CheckpointEntry,
    "head": SegmentEntry,
    "gap": GapEntry,
    "note": NoteEntry,
    "end": EndEntry,
}


def entry_from_body(kind: str, body: JsonObject) -> Entry:
    """Return the entry of a record.

    A kind that this version does not know becomes a note, so that a newer minor version can be
    read.

    Raises:
        RecordError: a part has the wrong form.
    """
    found = _TYPES.get(kind)
    return NoteEntry(name=kind, body=body) if found is None else found.from_body(body)


def _batch(body: JsonObject) -> tuple[int, ...] | str:
    value = body["i"]
    if isinstance(value, str):
        return value
    indices = [index for index in take_list(body, "i") if type(index) is int]
    if len(indices) != len(take_list(body, "i")):
        raise RecordError("'i' holds something that is no integer")
    return tuple(indices)


def hex_text(value: float) -> str:
    """Write a float exactly, without the zeros that a float32 leaves at the end."""
    head, exponent, rest = value.hex().partition("p")
    return f"{head.rstrip('0').rstrip('.')}p{rest}" if exponent and "." in head else head
