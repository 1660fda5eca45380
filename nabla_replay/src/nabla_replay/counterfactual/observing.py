"""What one executed step shows: its loss, its gradients and what it left in the parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from ..capturing.live import StepBoundary
from ..capturing.parts import Parts
from ..replaying.observation import facts_of

__all__ = ["MEASURES", "Measure", "Observer", "Seen"]

Measure = Literal["loss", "gradient norm", "parameter norm"]
MEASURES: Final[tuple[Measure, ...]] = ("loss", "gradient norm", "parameter norm")


@dataclass(frozen=True, slots=True)
class Seen:
    """One step.

    Attributes:
        step: as the run counts.
        values: by measure; what could not be seen is absent.
        raised: the exception of the step, if it raised one.
    """

    step: int
    values: dict[Measure, float]
    raised: str = ""

    @property
    def finite(self) -> bool:
        """Whether every number is finite."""
        return all(math.isfinite(value) for value in self.values.values())


class Observer:
    """Looks at a program when its optimizer has acted; a context manager.

    Args:
        parts: the program.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._boundary = StepBoundary(parts, self._look)
        self._values: dict[Measure, float] = {}

    def __enter__(self) -> Observer:
        self._boundary.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._boundary.stop()

    def take(self, step: int, returned: object) -> Seen:
        """Return what was seen of a step, given what it returned.

        A loss that it returned counts before the one that was seen: it may be the scaled one.
        """
        values, self._values = self._values, {}
        loss = facts_of(step, returned).loss
        if loss is not None:
            values["loss"] = loss
        values["parameter norm"] = norm_of(self._parts.model.parameters())
        return Seen(step, values)

    # ------------------------------------------------------------------ private
    def _look(self, loss: float | None) -> None:
        if loss is not None:
            self._values["loss"] = loss
        gradients = [one.grad for one in self._parts.model.parameters() if one.grad is not None]
        if gradients:
            self._values["gradient norm"] = norm_of(gradients)


@torch.no_grad()
def norm_of(tensors: Iterable[Tensor]) -> float:
    """Return the L2 norm of all of them, summed in float64."""
    dense = [one.detach().coalesce().values() if one.is_sparse else one.detach() for one in tensors]
    found = [float(torch.linalg.vector_norm(one, dtype=_wide(one))) for one in dense]
    return math.hypot(*found) if all(map(math.isfinite, found)) else _odd(found)


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64


def _odd(found: list[float]) -> float:
    return math.nan if any(map(math.isnan, found)) else math.inf
