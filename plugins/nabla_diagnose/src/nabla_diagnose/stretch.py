"""Some rows in a row that log the same signals, all finite: what checks may pass over at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Stretch", "are_finite", "stretch_of"]

_HIGHEST = ("loss", "lr", "update_ratio")
_LOWEST = ("lr", "update_ratio", "grad_norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """At most a block of rows, each a later step than the one before.

    Attributes:
        steps: ``[T]`` steps.
        columns: signal to ``[T]`` finite values; ``loss`` is among them.
        highest: signal to its highest value, for ``loss`` and the signals below but ``grad_norm``.
        lowest: signal to its lowest value, for ``lr``, ``update_ratio`` and ``grad_norm``.
    """

    steps: Sequence[int]
    columns: Mapping[str, Sequence[float]]
    highest: Mapping[str, float]
    lowest: Mapping[str, float]

    def last(self) -> dict[str, float]:
        """Return the signals of the last row."""
        return {name: values[-1] for name, values in self.columns.items()}


def stretch_of(steps: Sequence[int], columns: Mapping[str, Sequence[float]]) -> Stretch:
    """Return rows with the extremes that checks compare.

    Args:
        steps: ``[T]`` steps.
        columns: signal to ``[T]`` finite values; ``loss`` is among them.
    """
    return Stretch(
        steps=steps,
        columns=columns,
        highest={name: max(columns[name]) for name in _HIGHEST if name in columns},
        lowest={name: min(columns[name]) for name in _LOWEST if name in columns},
    )


def are_finite(columns: Mapping[str, Sequence[float]]) -> bool:
    """Whether all values of all signals are finite; ``False``, too, where their sum overflows."""
    return all(math.isfinite(sum(values)) for values in columns.values())
