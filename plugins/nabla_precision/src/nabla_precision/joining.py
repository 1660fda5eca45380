"""Joins the calls of each module to one row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from nabla_core.report import NotEvaluated

from .calls import Frame
from .measuring import FrameResult
from .result import Measurement, ModulePrecision
from .rules import GRADIENT_UNDERFLOW, LOCAL_ERROR, LOSS_SCALING_NEEDED

__all__ = ["Gathered", "joined"]


class Gathered:
    """The results of all calls, by module and by whether it called others."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, bool], list[FrameResult]] = {}
        self.kinds: dict[str, str] = {}

    def add(self, frame: Frame, result: FrameResult) -> None:
        """Note the result of one call; nothing is noted of one that computed nothing."""
        if result.computes:
            self.kinds[frame.path] = type(frame.module).__name__
            self.rows.setdefault((frame.path, not frame.is_leaf), []).append(result)

    def not_evaluated(self, has_loss: bool) -> tuple[NotEvaluated, ...]:
        """Return what could not be judged, with the reason."""
        entries = [
            NotEvaluated(rule=LOCAL_ERROR.id, reason=f"{path or self.kinds[path]}: {reason}")
            for (path, _), results in self.rows.items()
            for reason in dict.fromkeys(_reasons(results))
        ]
        if not has_loss:
            reason = "no loss was given, and the range of gradients depends on it"
            rules = (GRADIENT_UNDERFLOW, LOSS_SCALING_NEEDED)
            entries += [NotEvaluated(rule=rule.id, reason=reason) for rule in rules]
        return tuple(entries)


def joined(gathered: Gathered, dtypes: Sequence[str]) -> tuple[ModulePrecision, ...]:
    """Return one row per module; of several calls the worst numbers.

    Args:
        gathered: the results.
        dtypes: names of the candidates in the order of preference.
    """
    return tuple(
        _row(path, gathered.kinds[path], own_code, results, dtypes)
        for (path, own_code), results in gathered.rows.items()
    )


def _row(
    path: str, kind: str, own_code: bool, results: Sequence[FrameResult], dtypes: Sequence[str]
) -> ModulePrecision:
    measurements = {
        name: _worst([r.measurements[name] for r in results if name in r.measurements])
        for name in dtypes
        if any(name in r.measurements for r in results)
    }
    fitting = [name for name, found in measurements.items() if found.fits and not found.why_not]
    reasons = [result.why_not for result in results if result.why_not]
    return ModulePrecision(
        path=path,
        kind=kind,
        own_code=own_code,
        calls=len(results),
        measurements=measurements,
        recommended=fitting[0] if fitting else "float32",
        why_not="" if measurements or not reasons else reasons[0],
    )


def _worst(found: Sequence[Measurement]) -> Measurement:
    first = max(found, key=lambda m: (m.overflows, _known(m.worst)))
    return replace(
        first,
        local_error=_greatest([m.local_error for m in found]),
        grad_input_error=_greatest([m.grad_input_error for m in found]),
        grad_weight_error=_greatest([m.grad_weight_error for m in found]),
        propagated_error=_greatest([m.propagated_error for m in found]),
        lost_gradient=_greatest([m.lost_gradient for m in found]),
    )


def _greatest(values: Sequence[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _known(value: float) -> float:
    return -1.0 if math.isnan(value) else value


def _reasons(results: Sequence[FrameResult]) -> list[str]:
    whole = [result.why_not for result in results if result.why_not]
    parts = [
        f"in {name} it {found.why_not}"
        for result in results
        for name, found in result.measurements.items()
        if found.why_not
    ]
    return whole + parts
