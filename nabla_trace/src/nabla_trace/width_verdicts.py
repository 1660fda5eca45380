"""GEO504: does what a step changes depend on the width?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from nabla_core.issue import Issue, Location, Quantity

from .options import TraceOptions
from .rules.width import WIDTH_SCALING
from .width_result import LayerGrowth

__all__ = ["width_issues"]

_SURE = 2.0
"""Standard errors by which a slope must be beyond the limit."""


def width_issues(layers: Sequence[LayerGrowth], options: TraceOptions) -> Iterator[Issue]:
    """Yield one issue for the layers that change more with the width, one for those that change
    less; each at the first such layer, from which those behind it inherit.

    Args:
        layers: in the order of the calls.
        options: limits.
    """
    limit = options.width_slope
    known = [layer for layer in layers if math.isfinite(layer.slope)]
    for sign, word in ((1.0, "grows"), (-1.0, "shrinks")):
        found = [one for one in known if sign * one.slope - _SURE * one.error > limit]
        if found:
            first = found[0]
            yield WIDTH_SCALING.issue(
                f"The change of the output of {first.name} {word} with the width to the power "
                f"{first.slope:.2f} ± {first.error:.2f}, limit {sign * limit:.2f}; so it is at "
                f"{len(found)} of {len(known)} layers.",
                where=Location(module=first.name, op=word),
                phase="optimizer",
                slope=Quantity(value=first.slope, limit=sign * limit),
                error=first.error,
                layers=len(found),
            )
