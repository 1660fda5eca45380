"""Compares one replayed step with its record, component by component."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..capturing.brief import anchor_in
from ..capturing.generators import drawn_between
from ..fingerprints.fingerprinter import Fingerprinter, value_bytes
from ..fingerprints.layout import Piece
from ..fingerprints.mlh64 import zeros_hash
from ..store.entries import StepEntry

__all__ = ["ComponentResult", "StepResult", "StepStatus", "cause_order", "compare_step"]

StepStatus = Literal["MATCH", "DIVERGENCE", "UNVERIFIED"]

_TENSORS = ("gradient", "buffer", "parameter", "extra")
# Where the generators differ too, what was drawn explains the rest: all was equal before the step.
# Rates and schedules decide the update, so that they come before the parameters.
_DATA = ("loader", "data", "batch", "rng", "loss", "gradient", "buffer")
_ORDER = (*_DATA, "scheduler", "optimizer", "scaler", "parameter", "extra")
_PLACES = {name: index for index, name in enumerate(_ORDER)}
_STATE = frozenset(("loss", *_TENSORS))

_OTHER_TENSORS = "the record lists other tensors than the program has"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentResult:
    """One component of one step.

    Attributes:
        component: ``loss``, ``gradient``, ``parameter``, ``rng``, ...
        status: how the comparison ended.
        names: tensors, generators or other parts that differ.
        recorded: value in the record, where it is short.
        replayed: value now.
        reason: why it was not compared.
    """

    component: str
    status: StepStatus
    names: tuple[str, ...] = ()
    recorded: str = ""
    replayed: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One replayed step.

    Attributes:
        step: its number.
        segment: of the log.
        components: in the order of cause: the data, random numbers, the loss, gradients,
            parameters, the rest.
    """

    step: int
    segment: int
    components: tuple[ComponentResult, ...]

    @property
    def status(self) -> StepStatus:
        """``MATCH`` needs at least the loss or some tensors to be compared and equal, and that
        tensors which were recorded could be compared at all."""
        kinds = {one.status for one in self.components}
        if "DIVERGENCE" in kinds:
            return "DIVERGENCE"
        if any(one.reason == _OTHER_TENSORS for one in self.components):
            return "UNVERIFIED"
        matched = {one.component for one in self.components if one.status == "MATCH"}
        evident = matched & _STATE or any(name.startswith("tensor ") for name in matched)
        return "MATCH" if evident else "UNVERIFIED"

    @property
    def is_brief(self) -> bool:
        """Whether no more was recorded than the loss and one small parameter."""
        return not any(one.component == "rng" for one in self.components)

    @property
    def drew_otherwise(self) -> bool:
        """Whether other random numbers were drawn than in the recorded step."""
        return any(one.component == "rng" and one.status == "DIVERGENCE" for one in self.components)

    @property
    def diverging_extra(self) -> bool:
        """Whether the extra state differs."""
        return any(
            one.component == "extra" and one.status == "DIVERGENCE" for one in self.components
        )

    @property
    def differs_in_extra_only(self) -> bool:
        """Whether all but the extra state is as it was: it is last in the order of cause."""
        return self.first is not None and self.first.component == "extra"

    def without_extra(self) -> StepResult:
        """Return the same with the extra state not compared."""
        reason = "the recorded program changed it between two epochs"
        kept = tuple(
            _unverified("extra", reason) if one.component == "extra" else one
            for one in self.components
        )
        return StepResult(step=self.step, segment=self.segment, components=kept)

    @property
    def first(self) -> ComponentResult | None:
        """The first component that differs."""
        return next((one for one in self.components if one.status == "DIVERGENCE"), None)


def compare_step(
    recorded: StepEntry,
    replayed: StepEntry,
    fingerprinter: Fingerprinter,
    segment: int,
    unasked: frozenset[str] = frozenset(),
) -> StepResult:
    """Compare a record with one made in the replay.

    Args:
        recorded: the record.
        replayed: what :class:`.recording.StepLook` saw.
        fingerprinter: made the fingerprints of ``replayed``, turned as the record says.
        segment: of the record.
        unasked: extra state that nobody gave to the capture: the program may lack it.
    """
    found = [
        *_scalars(recorded, replayed),
        *_digests(recorded, replayed),
        *_tensors(recorded, replayed, fingerprinter, unasked),
    ]
    found.sort(key=lambda one: cause_order(one.component))
    return StepResult(step=recorded.step, segment=segment, components=tuple(found))


def cause_order(component: str) -> int:
    """Return the place of a component in the order of cause."""
    return _PLACES.get(component, len(_PLACES))


def _scalars(recorded: StepEntry, replayed: StepEntry) -> Iterator[ComponentResult]:
    if recorded.loss is not None:
        if replayed.loss is None:
            yield _unverified("loss", "the replayed step returned no loss")
        else:
            yield _result("loss", recorded.loss.hex(), replayed.loss.hex())
    if recorded.batch is not None:
        if replayed.batch is None:
            yield _unverified("batch", "the replayed step said nothing about its batch")
        else:
            yield _result("batch", str(recorded.batch), str(replayed.batch))


def _digests(recorded: StepEntry, replayed: StepEntry) -> Iterator[ComponentResult]:
    for name, there in recorded.digests.items():
        here = replayed.digests.get(name)
        if here is None:
            yield _unverified(name, f"the program to replay has no {name}")
        elif name == "rng" and here != there:
            drawn = drawn_between(there, here)
            yield ComponentResult(
                component=name, status="DIVERGENCE", names=drawn, recorded=there, replayed=here
            )
        else:
            yield _result(name, there, here)


def _result(component: str, recorded: str, replayed: str) -> ComponentResult:
    status: StepStatus = "MATCH" if recorded == replayed else "DIVERGENCE"
    return ComponentResult(component=component, status=status, recorded=recorded, replayed=replayed)


def _unverified(component: str, reason: str) -> ComponentResult:
    return ComponentResult(component=component, status="UNVERIFIED", reason=reason)


def _tensors(
    recorded: StepEntry,
    replayed: StepEntry,
    fingerprinter: Fingerprinter,
    unasked: frozenset[str],
) -> Iterator[ComponentResult]:
    for name, there in recorded.vectors.items():
        here = replayed.vectors.get(name)
        if here is None or len(here) != len(there):
            yield _unverified("parameter", _OTHER_TENSORS)
            continue
        size = value_bytes(fingerprinter.algorithm)
        pairs = [
            (piece, there[at * size : (at + 1) * size], here[at * size : (at + 1) * size])
            for at, piece in enumerate(_pieces(name, fingerprinter))
        ]
        for component in _TENSORS:
            mine = [one for one in pairs if _component(fingerprinter, one[0]) == component]
            if component == "extra":
                mine = [one for one in mine if not _is_unasked(one, fingerprinter, unasked)]
            if mine:
                yield _tensor_result(component, mine, fingerprinter)


def _pieces(name: str, fingerprinter: Fingerprinter) -> Sequence[Piece]:
    """Return what the values of a vector are about."""
    anchor = anchor_in(name, len(fingerprinter.entries))
    if anchor is not None:
        return (Piece(anchor, 0, fingerprinter.extents[anchor].size_bytes),)
    return fingerprinter.pieces[int(name.partition("/")[0])]


def _is_unasked(
    pair: tuple[Piece, bytes, bytes], fingerprinter: Fingerprinter, unasked: frozenset[str]
) -> bool:
    """Whether this is state that the capture found by itself, and the program does not have."""
    name = fingerprinter.entries[pair[0].entry].name.partition(".")[0]
    return name in unasked and not any(pair[2])


def _tensor_result(
    component: str, pairs: Sequence[tuple[Piece, bytes, bytes]], fingerprinter: Fingerprinter
) -> ComponentResult:
    absent = bytes(value_bytes(fingerprinter.algorithm))
    if component == "gradient":
        pairs = [
            one for one in pairs if one[1] == one[2] or not _was_cleared(one, fingerprinter, absent)
        ]
        if not pairs:
            return _unverified(component, "the gradients were cleared before the step was recorded")
    differing = dict.fromkeys(
        fingerprinter.entries[piece.entry].name for piece, there, here in pairs if there != here
    )
    if differing:
        return ComponentResult(component=component, status="DIVERGENCE", names=tuple(differing))
    if all(there == absent for _, there, _ in pairs):
        return _unverified(component, "there were none")
    return ComponentResult(component=component, status="MATCH")


def _was_cleared(
    pair: tuple[Piece, bytes, bytes], fingerprinter: Fingerprinter, absent: bytes
) -> bool:
    """Whether one side holds nothing or zeros: programs clear gradients sooner or later."""
    piece, there, here = pair
    size = piece.end - piece.start
    if fingerprinter.algorithm == "crc32":
        zeros = (zlib.crc32(bytes(size)) or 1).to_bytes(len(absent), "little")
    else:
        zeros = zeros_hash(size).to_bytes(len(absent), "little")
    return bool({there, here} & {absent, zeros})


def _component(fingerprinter: Fingerprinter, piece: Piece) -> str:
    return fingerprinter.entries[piece.entry].component
