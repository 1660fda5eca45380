"""Columns that hold a fact about one layer, e.g. ``grad_norm/encoder.0``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["LayerColumns"]

_KINDS = (
    "grad_norm",
    "weight_norm",
    "update_ratio",
    "dead_fraction",
    "saturated_fraction",
    "zero_fraction",
    "activation_std",
)
_NAMED = re.compile(rf"(?:layers?/)?({'|'.join(_KINDS)})[/:](.+)")
_LIGHTNING = re.compile(r"grad_(?:2|2\.0)_norm/(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerColumns:
    """The per-layer columns of a log.

    Attributes:
        columns: column to ``(kind, layer)``.
        layout: the layers, in the order of their first column.
    """

    columns: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    layout: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> LayerColumns:
        """Find the per-layer columns among ``names``."""
        columns = {}
        for raw in names:
            found, lightning = _NAMED.fullmatch(raw), _LIGHTNING.fullmatch(raw)
            if found:
                columns[raw] = (found[1], found[2])
            elif lightning:
                columns[raw] = ("grad_norm", lightning[1])
        layout = tuple(dict.fromkeys(layer for _, layer in columns.values()))
        return cls(columns=columns, layout=layout)

    def arrays(
        self, values: Mapping[str, float]
    ) -> tuple[dict[str, tuple[float, ...]], tuple[str, ...]]:
        """Return the facts of one row as arrays with their layout.

        A row that lacks a layer for one kind holds NaN there, the only way that an aligned array
        has to say "not measured".
        """
        by_kind: dict[str, dict[str, float]] = {}
        for raw, value in values.items():
            kind, layer = self.columns[raw]
            by_kind.setdefault(kind, {})[layer] = value
        present = {layer for found in by_kind.values() for layer in found}
        layout = tuple(layer for layer in self.layout if layer in present)
        arrays = {
            kind: tuple(found.get(layer, math.nan) for layer in layout)
            for kind, found in by_kind.items()
        }
        return arrays, layout
