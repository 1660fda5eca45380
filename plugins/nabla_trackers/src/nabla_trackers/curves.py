"""The signals of a run as its report shows them: bounded, whatever the length of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nabla_core.plots import Curves

from .wording import safe_key

if TYPE_CHECKING:
    from nabla_core.report import Report

__all__ = ["Curve", "curves_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One signal over the optimizer steps.

    Attributes:
        key: name under ``nabla/`` as every tracker takes it.
        steps: shape ``[T]``.
        values: shape ``[T]``; NaN and the infinities are values.
    """

    key: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


def curves_of(report: Report) -> Iterator[Curve]:
    """Yield every curve over steps in the report's sections, each key once."""
    seen: set[str] = set()
    plots = [plot for section in report.sections for plot in section.plots]
    for plot in plots:
        if not isinstance(plot, Curves) or plot.x_label != "step":
            continue
        for series in plot.series:
            key = f"nabla/{safe_key(series.name)}"
            if key not in seen:
                seen.add(key)
                steps = tuple(int(place) for place in series.at)
                yield Curve(key=key, steps=steps, values=series.values)
