"""Measures one call of a module in every candidate dtype."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .alone import Alone, Cast, run_alone
from .calls import Frame
from .deviation import (
    Deviation,
    gradient_error,
    headroom,
    is_sparse_error,
    loss_scale_error,
    output_deviation,
)
from .exact import Exact, top
from .overflowing import overflows_inside
from .result import Measurement
from .truth import Truth, spoilt

__all__ = ["Casts", "FrameResult", "Limits", "measure"]

_SMALLER = 2.0**-10
_LARGER = 2.0**12
_NARROW_RANGE = 1e-30
"""Smallest normal number above which small gradients depend on the loss scale."""

_NOTHING = 1e-13


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the audit.

    Attributes:
        eps: local errors above so many eps of a narrow dtype are reported. Rounding the inputs, the
            weights and each result costs a healthy module one to four.
        float32: the limit in float32, a relative error: about one eps of float16. A module that
            loses a few of the digits of float32 is still far better than any in half precision.
    """

    eps: float = 8.0
    float32: float = 1e-3

    def of(self, dtype: torch.dtype) -> float:
        """Return the largest healthy relative error in ``dtype``."""
        if dtype is torch.float32:
            return self.float32
        return self.eps * float(torch.finfo(dtype).eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Casts:
    """The dtypes of an audit, with the parameters in each of them.

    Attributes:
        reference: the dtype that counts as exact.
        control: float32, for what is the same in every dtype.
        candidates: by name.
        loss_scales: largest loss scale at which no gradient overflows, by name; empty without a
            loss.
        parameter_grads: gradients of the reference pass by ``id`` of the parameter, of those that
            one call alone has used.
    """

    reference: Cast
    control: Cast
    candidates: Mapping[str, Cast]
    loss_scales: Mapping[str, float] = field(default_factory=dict)
    parameter_grads: Mapping[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrameResult:
    """Measurements of one call by dtype, or why there are none."""

    measurements: Mapping[str, Measurement]
    why_not: str = ""
    computes: bool = True


def measure(frame: Frame, casts: Casts, limits: Limits) -> FrameResult:
    """Run the module of ``frame`` alone in each dtype and compare with the reference pass.

    Where that shows an error, the module is run again in the reference's own dtype: one that does
    not return the same there is not judged.
    """
    truth = Truth(frame, casts.reference, casts.control, casts.parameter_grads)
    found: dict[str, Measurement] = {}
    computes = frame.is_leaf
    for name, cast in casts.candidates.items():
        measured, operations = _candidate(truth, casts, name, limits.of(cast.dtype))
        computes = operations > 0 or (computes and operations < 0)
        if not computes:
            return FrameResult({}, computes=False)
        found[name] = measured
    if frame.random is not None or any(not one.fits for one in found.values()):
        reason = truth.why_not_repeatable()
        if reason:
            return FrameResult({}, reason)
    return FrameResult(found)


def _candidate(truth: Truth, casts: Casts, name: str, limit: float) -> tuple[Measurement, int]:
    """Return the measurement, and how many operations computed; -1 when they were not counted."""
    frame, cast = truth.frame, casts.candidates[name]
    base = _range(truth, casts, name, limit)
    try:
        outputs, exact_grads = truth.outputs, None
        if spoilt(truth.given, cast.dtype):
            outputs, exact_grads = truth.through(cast.dtype)
        alone = run_alone(frame, cast, truth.cotangents)
        deviation = output_deviation(alone.outputs, outputs, cast.dtype)
        deviation = _without_jumps(truth, cast, alone, deviation, limit)
        if deviation.error > limit and not deviation.overflows:
            deviation = replace(deviation, overflows=overflows_inside(frame, cast))
        errors = _gradient_errors(truth, cast, alone, exact_grads, limit)
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else ""
        return replace(base, why_not=f"raises {type(error).__name__}: {text}"), 1
    measured = _filled(base, deviation, errors, alone)
    return measured, alone.operations


def _range(truth: Truth, casts: Casts, name: str, limit: float) -> Measurement:
    dtype = casts.candidates[name].dtype
    grads = truth.grads
    if _is_noise(grads, dtype, casts.loss_scales.get(name)):
        grads = []
    return Measurement(
        limit=limit,
        eps=float(torch.finfo(dtype).eps),
        output=headroom(truth.returned, dtype),
        gradient=headroom(grads, dtype) if casts.loss_scales else None,
        lost_gradient=_lost(grads, dtype, casts.loss_scales.get(name)),
    )


def _filled(
    base: Measurement, deviation: Deviation, errors: Sequence[float], alone: Alone
) -> Measurement:
    weights = [bool(leaf.parameter) for leaf in alone.leaves]
    return replace(
        base,
        local_error=deviation.error,
        overflows=deviation.overflows,
        grad_input_error=_largest(errors, weights, wanted=False),
        grad_weight_error=_largest(errors, weights, wanted=True),
    )


def _gradient_errors(
    truth: Truth,
    cast: Cast,
    alone: Alone,
    exact: Sequence[Exact | None] | None,
    limit: float,
) -> list[float]:
    """Return the error of each gradient; its natural size is only asked for where it matters."""
    right = truth.exact_grads(alone.leaves) if exact is None else exact
    grads, scale = alone.grads, 1.0
    errors = _errors(grads, right, [0.0] * len(grads), cast.dtype, scale)
    if not _too_large(errors, limit) and _all_finite(grads, errors):
        return errors
    other = _other_scale(cast.dtype, is_finite=_all_finite(grads, errors))
    if other != 1.0:
        scaled = {position: c * other for position, c in truth.cotangents.items()}
        again = run_alone(truth.frame, cast, scaled).grads
        errors_again = _errors(again, right, [0.0] * len(again), cast.dtype, other)
        if other < 1.0 or _worst(errors_again) < _worst(errors):
            grads, scale, errors = again, other, errors_again
    if not _too_large(errors, limit):
        return errors
    errors = _errors(grads, right, truth.natural, cast.dtype, scale)
    if not _too_large(errors, limit):
        return errors
    # a derivative may jump (the largest of several, a bend): there the rounded input decides
    jumped = _errors(grads, truth.through(cast.dtype)[1], truth.natural, cast.dtype, scale)
    return [
        min(pair) if pair[1] == pair[1] else pair[0] for pair in zip(errors, jumped, strict=True)
    ]


def _all_finite(grads: Sequence[Tensor | None], errors: Sequence[float]) -> bool:
    if all(map(math.isfinite, errors)):
        return True  # an infinity is an infinite error
    return all(grad is None or math.isfinite(top(grad)) for grad in grads)


def _other_scale(dtype: torch.dtype, *, is_finite: bool) -> float:
    """Return another loss scale that may suit a call: smaller where its sums overflow, larger where
    one of its gradients is so much smaller than the others that it loses digits."""
    if not is_finite:
        return _SMALLER
    return _LARGER if torch.finfo(dtype).tiny > _NARROW_RANGE else 1.0


def _worst(errors: Sequence[float]) -> float:
    return max((error for error in errors if not math.isnan(error)), default=0.0)


def _too_large(errors: Sequence[float], limit: float) -> bool:
    return any(not error <= limit for error in errors if not math.isnan(error))


def _without_jumps(
    truth: Truth, cast: Cast, alone: Alone, deviation: Deviation, limit: float
) -> Deviation:
    """Leave out the error of a function that jumps, where few inputs are rounded over an edge."""
    if deviation.overflows or not deviation.error > limit:
        return deviation
    if not is_sparse_error(alone.outputs, truth.outputs, cast.dtype, limit):
        return deviation
    outputs, _ = truth.through(cast.dtype)
    there = output_deviation(alone.outputs, outputs, cast.dtype)
    return there if there.error <= limit else deviation


def _errors(
    grads: Sequence[Tensor | None],
    right: Sequence[Exact | None],
    natural: Sequence[float],
    dtype: torch.dtype,
    scale: float,
) -> list[float]:
    rows = zip(grads, right, natural, strict=True)
    return [
        gradient_error(grad, _scaled(exact, scale), size * scale, dtype)
        for grad, exact, size in rows
    ]


def _scaled(exact: Exact | None, scale: float) -> Exact | None:
    return exact if exact is None or scale == 1.0 else Exact(exact.tensor * scale)


def _is_noise(grads: Sequence[Exact], dtype: torch.dtype, scale: float | None) -> bool:
    """Whether gradients are zero up to the rounding of the reference itself."""
    if scale is None:
        return False
    highest = max((one.highest for one in grads), default=0.0)
    return highest * scale < _NOTHING * float(torch.finfo(dtype).max)


def _lost(grads: Sequence[Exact], dtype: torch.dtype, scale: float | None) -> float:
    return math.nan if scale is None or not grads else loss_scale_error(grads, dtype, scale)


def _largest(errors: Sequence[float], are_weights: Sequence[bool], *, wanted: bool) -> float:
    known = [e for e, w in zip(errors, are_weights, strict=True) if w is wanted and e == e]
    return max(known, default=math.nan)
