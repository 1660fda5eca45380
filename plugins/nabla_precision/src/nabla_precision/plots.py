"""An audit as a plot: the own error of every module in every dtype, in eps of that dtype."""

from __future__ import annotations

from nabla_core.plots import Ladder, Series

from .result import PrecisionReport

__all__ = ["precision_ladder"]


def precision_ladder(audit: PrecisionReport) -> Ladder:
    """Return modules in the order of their calls, with one series per dtype; unknown is absent."""
    return Ladder(
        title="Own error of the modules",
        rungs=tuple(module.label for module in audit.modules),
        series=tuple(_series(audit, dtype) for dtype in audit.dtypes),
        unit="eps of the dtype",
        scale="log",
        note="of its output or of a gradient, whichever is larger, run alone on exact inputs",
    )


def _series(audit: PrecisionReport, dtype: str) -> Series:
    known = [
        (place, found.worst / found.eps)
        for place, module in enumerate(audit.modules)
        if (found := module.measurements.get(dtype)) is not None and found.worst == found.worst
    ]
    return Series(
        name=dtype,
        at=tuple(place for place, _ in known),
        values=tuple(value for _, value in known),
    )
