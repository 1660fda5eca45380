"""A traced loop as text: alpha of the probed steps, noise scale, signal ladder."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nabla_core.reporters.style import counted

from .bars import bar

if TYPE_CHECKING:
    from ..live.findings import Findings
    from ..live.ladder import Rung
    from ..step_probes import NextBatchProbe

__all__ = ["alpha_lines", "findings_lines", "ladder_lines"]

_WIDTH = 14
_ROWS = 40
_STRIP = 41
_DECADES = 8.0


def findings_lines(found: Findings) -> list[str]:
    """Return all views of which there is anything to show."""
    lines = [f"looked at {counted(len(found.looks), 'step')}"]
    if found.skipped:
        step, why = next(iter(found.skipped.items()))
        lines.append(f"no samples at {counted(len(found.skipped), 'step')} (first {step}): {why}")
    lines += [f"{part} ended: {why}" for part, why in found.failed.items()]
    noise = found.noise
    if noise is not None and "noise" in found.what:
        value = f"{noise.value:.3g}" if noise.is_determined else "undetermined"
        lines.append(
            f"noise scale {value}, 90 % {noise.low:.3g} to {noise.high:.3g}, "
            f"batch size {noise.samples:.0f}"
        )
    if found.next_batch:
        lines += ["", *alpha_lines(found.next_batch)]
    if found.signal:
        lines += ["", *ladder_lines(found.signal)]
    return lines


def alpha_lines(probes: tuple[NextBatchProbe, ...]) -> list[str]:
    """Return one line per probe: where the step ended between no progress and mirror point."""
    lines = [f"{'step':>6}  {'-1 no progress':<19}0{'mirror point +1':>21}"]
    for probe in probes[-_ROWS:]:
        lines.append(f"{probe.step:>6}  {_strip(probe)}")
    return lines


def _strip(probe: NextBatchProbe) -> str:
    if not probe.is_finite:
        return "not finite"
    slope, curvature = probe.slope, probe.curvature
    if max(abs(slope), abs(curvature)) <= probe.resolution:
        return "below the rounding of the loss".ljust(_STRIP)
    if slope >= 0:
        return "uphill on this batch".ljust(_STRIP)
    alpha = 2 * curvature / -slope - 1 if curvature > 0 else -1.0
    place = round((min(max(alpha, -1.0), 1.0) + 1) / 2 * (_STRIP - 1))
    return "·" * place + "●" + "·" * (_STRIP - 1 - place) + f" {alpha:+.2f}"


def ladder_lines(rungs: tuple[Rung, ...]) -> list[str]:
    """Return one line per layer: gradient to the left, activation to the right."""
    lines = [f"{'gradient':>{_WIDTH + 10}}  {'activation':<{_WIDTH + 10}}  alike  layer"]
    most = max((r.backward for r in rungs if math.isfinite(r.backward)), default=1.0)
    high = max((r.forward for r in rungs), default=1.0)
    for rung in rungs[-_ROWS:]:
        left = bar(_decades(rung.backward, most), _WIDTH).rstrip().rjust(_WIDTH)
        right = bar(_decades(rung.forward, high), _WIDTH)
        lines.append(
            f"{rung.backward:>9.2g} {left}  {right} {rung.forward:<9.2g}  {rung.likeness:+.2f}  "
            f"{rung.name}"
        )
    return lines


def _decades(value: float, largest: float) -> float:
    """Return a length for a bar on a scale of eight decades below the largest value."""
    if not (math.isfinite(value) and value > 0 and largest > 0):
        return 0.0
    return max(0.0, 1.0 + math.log10(value / largest) / _DECADES)
