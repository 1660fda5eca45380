"""One-sided slopes: is a function smooth at a point, on a kink, or without slopes at all?"""

from __future__ import annotations

from .oracle import Curve
from .resolution import Resolution

__all__ = ["has_slopes", "is_smooth"]


def is_smooth(curve: Curve, resolution: Resolution) -> bool:
    """Whether one-sided slopes agree, or come closer with the step, and have a limit.

    Slopes on both sides of a jump or of a cube root agree, but grow as the step shrinks.
    """
    wide, narrow = resolution.one_sided[0], resolution.one_sided[2]
    (far_gap, far_slope), (gap, slope) = curve.one_sided(wide), curve.one_sided(narrow)
    if not _is_bounded(curve, resolution, far_slope, slope):
        return False
    return gap <= 1e-2 * slope or gap <= 0.3 * far_gap


def has_slopes(curve: Curve, resolution: Resolution) -> bool:
    """Whether one-sided slopes have limits, which may differ: a kink, but neither jump nor root."""
    far, near = (curve.one_sided(resolution.one_sided[i])[1] for i in (0, 2))
    return _is_bounded(curve, resolution, far, near)


def _is_bounded(curve: Curve, resolution: Resolution, far: float, near: float) -> bool:
    """Whether the slopes of a wide and a narrow step tell of a limit; false for NaN."""
    rounding = 64 * resolution.unit / resolution.one_sided[2] * (curve.size + far)
    return near <= 2 * far + rounding
