"""Looks at a program as it is after a step: the same look records a step and compares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from ..fingerprints.crc32 import crc32_of
from ..fingerprints.fingerprinter import Fingerprinter
from ..store.entries import StepEntry
from .digests import state_digest, state_digests
from .generators import GeneratorDigest
from .parts import Parts

__all__ = ["StepFacts", "StepLook", "evidence_digest", "vector_name"]


_NOTHING: Mapping[str, Tensor] = MappingProxyType({})
_NO_NUMBERS: Mapping[str, float] = MappingProxyType({})


class StepFacts(NamedTuple):
    """What the program says about a step.

    Attributes:
        step: its own count; by default the one after the last.
        loss: value.
        batch: indices of the samples, or a digest of them.
        tensors: further evidence by name.
        signals: further numbers by name.
        data_state: what the program says about where its data is.
    """

    step: int | None = None
    loss: float | None = None
    batch: tuple[int, ...] | str | None = None
    tensors: Mapping[str, Tensor] = _NOTHING
    signals: Mapping[str, float] = _NO_NUMBERS
    data_state: object = None


def vector_name(part: int, parts: int) -> str:
    """Return how a record calls the fingerprints of one part of the state."""
    return f"{part}/{parts}"


class StepLook:
    """Makes the record of a step.

    Args:
        parts: the program.
        fingerprinter: hashes its tensors.
    """

    def __init__(self, parts: Parts, fingerprinter: Fingerprinter) -> None:
        self._parts = parts
        self._fingerprinter = fingerprinter
        self._generators = GeneratorDigest()

    def __call__(self, facts: StepFacts, step: int, part: int, place: str | None) -> StepEntry:
        """Look now.

        Args:
            facts: what the program says.
            step: number of the step.
            part: of the state to hash.
            place: epoch and position in the data.
        """
        return StepEntry(
            step=step,
            loss=facts.loss,
            batch=facts.batch,
            signals=dict(facts.signals),
            digests=dict(self._digests(facts, part, place)),
            vectors={
                vector_name(part, self._fingerprinter.parts): self._fingerprinter.packed(part)
            },
        )

    def _digests(self, facts: StepFacts, part: int, place: str | None) -> Iterator[tuple[str, str]]:
        yield "rng", self._generators()
        yield from state_digests(self._parts, thorough=part == 0).items()
        if place is not None:
            yield "loader", place
        if facts.data_state is not None:
            yield "data", f"{state_digest(facts.data_state):08x}"
        for name, tensor in facts.tensors.items():
            yield f"tensor {name}", evidence_digest(tensor)


@torch.no_grad()
def evidence_digest(tensor: Tensor) -> str:
    """Return eight hexadecimal digits for the value of a tensor."""
    return f"{crc32_of(tensor):08x}"
