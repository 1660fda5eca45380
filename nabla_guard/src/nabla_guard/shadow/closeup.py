"""A second, closer look at one region whose result is wrong: which op, and is it the data's fault.

Beside the exact float64 values a second set is computed from inputs that were moved by a few
roundings of the region's dtype. What moves the result as far as the error itself is a property of
the problem (its condition), which no other way of computing it could avoid; the rest is the
algorithm's fault.

Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5 to 1.7: the
forward error of a stable algorithm is bounded by the condition number times the unit roundoff.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import CodeType

import torch
from torch import Tensor

from ..origin.batch import Batch, sample_at
from ..origin.nested import leaves
from ..taps.place import user_line
from .compare import flushed_share, magnitude, relative_error
from .findings import OpError, RegionError
from .frames import Frame
from .limits import ShadowLimits, dtype_name, error_limit, roundoff
from .mirrors import Mirrors, memory_of, upcast
from .mode import OpCall
from .ops import in_float64, replaced

__all__ = ["CloseUp"]

_ROUNDINGS = 4
_SUMS = frozenset({"_to_copy", "add", "clone", "mean", "neg", "rsub", "sub", "sum"})
_FACTORS = frozenset({"div", "mul"})
_OWN_SLOPES = frozenset({"cumprod", "exp", "exp2", "pow", "prod"})
"""Ops whose derivative is small or wrong as their result is."""


class CloseUp:
    """Looks at one region in every detail.

    Args:
        number: the region, see :attr:`.frames.Frame.number`.
        dtype: coarsest dtype of its results.
        limits: how far is too far.
        until: code outside of which no line of the program lies.
        batch: the batch of the step.

    Attributes:
        verdict: the error of the region, if it is one.
    """

    def __init__(
        self,
        number: int,
        dtype: torch.dtype,
        limits: ShadowLimits,
        until: CodeType,
        batch: Batch | None = None,
    ) -> None:
        self.verdict: RegionError | None = None
        self._number = number
        self._dtype = dtype
        self._limit = error_limit(dtype)
        self._limits = limits
        self._until = until
        self._batch = batch or Batch()
        self._wrong: dict[int, _Descent] = {}
        self._overflows: dict[int, _Descent] = {}
        self._inherited: _Descent | None = None
        self._operands = 0.0
        self._last: _Descent | None = None

    def opened(self, frame: Frame) -> None:
        """Make only the region in question active."""
        frame.active = frame.number == self._number
        if frame.active:
            frame.shifted = Mirrors(_ROUNDINGS * roundoff(self._dtype))

    def before(self, call: OpCall) -> None:
        """See :class:`.mode.Observer`."""
        value = call.frame.mirrors.value
        self._operands = max(magnitude(value(tensor)) for tensor in call.inputs)
        keys = [memory_of(tensor) or 0 for tensor in call.inputs]
        known = [self._wrong.get(key) or self._overflows.get(key) for key in keys]
        wrong = [descent for descent in known if descent is not None]
        self._inherited = wrong[0].through(call.name, len(wrong)) if wrong else None

    def after(self, call: OpCall) -> None:
        """See :class:`.mode.Observer`."""
        for (tensor, mirror), moved in zip(call.outputs, call.shifted, strict=False):
            key = memory_of(tensor) or 0
            error = relative_error(tensor, mirror)
            explained = relative_error(moved, mirror)
            wrong = self._is_wrong(error, explained)
            self._wrong.pop(key, None)
            self._overflows.pop(key, None)
            if not wrong and not _overflows(tensor, mirror):
                if self._inherited is not None and self._inherited.first.overflowed:
                    self._overflows[key] = self._inherited.shown_by(call.name, tensor)
                continue
            descent = self._inherited or _Descent(
                self._describe(call, (tensor, mirror), error, explained),
                linear=call.name not in _OWN_SLOPES,
            )
            if wrong:
                descent = descent.shown_by(call.name, tensor)
                self._wrong[key] = self._last = descent
            else:  # infinite, as it must be in this dtype: it matters if a finite number follows
                self._overflows[key] = _Descent(replace(descent.first, error=math.inf))

    def left(self, frame: Frame, tensor: Tensor, mirror: Tensor) -> None:
        """Judge a tensor that leaves the region."""
        if frame.shifted is None or self.verdict is not None:
            return
        error = relative_error(tensor, mirror)
        explained = relative_error(frame.shifted.value(tensor), mirror)
        descent = self._wrong.get(memory_of(tensor) or 0) or self._last
        if not self._is_wrong(error, explained) or descent is None:
            return
        first = descent.first
        self.verdict = RegionError(
            module=first.module,
            model=frame.model,
            error=error,
            limit=self._limit,
            explained=explained,
            dtype=dtype_name(self._dtype),
            first=first,
            gradient_free=descent.linear and tensor.numel() == 1,
        )

    def _is_wrong(self, error: float, explained: float) -> bool:
        return error > self._limit and error > self._limits.conditioning_ratio * explained

    def _describe(
        self, call: OpCall, output: tuple[Tensor, Tensor], error: float, explained: float
    ) -> OpError:
        tensor, mirror = output
        line = user_line(self._until) or call.line
        return OpError(
            op=call.name,
            module=call.module,
            place=line.place if line else None,
            error=error,
            explained=explained,
            local=_local_error(call, tensor),
            operands=self._operands,
            result=magnitude(mirror),
            flushed=flushed_share(tensor, mirror),
            dtype=dtype_name(tensor.dtype),
            overflowed=_overflows(tensor, mirror),
            sample=self._sample(call, tensor),
        )

    def _sample(self, call: OpCall, tensor: Tensor) -> int | None:
        places = tensor.isinf().nonzero()
        index = tuple(places[0].tolist()) if places.numel() else ()
        return sample_at(index, tuple(tensor.shape), self._batch, call.inputs)


@dataclass(frozen=True, slots=True)
class _Descent:
    """How a wrong value came about.

    Attributes:
        first: the op in which the error begins.
        linear: whether only sums and constant factors lie between it and the value.
    """

    first: OpError
    linear: bool = True

    def through(self, op: str, wrong_inputs: int) -> _Descent:
        """Return the descent of what an op makes of the value."""
        linear = op in _SUMS or (op in _FACTORS and wrong_inputs == 1)
        return replace(self, linear=self.linear and linear)

    def shown_by(self, op: str, tensor: Tensor) -> _Descent:
        """Return the descent of a wrong value; of one that an op made of an infinity, with it."""
        first = self.first
        if not first.overflowed or first.hidden_by:
            return self
        finite = bool(tensor.isfinite().all())
        return replace(self, first=replace(first, hidden_by=op)) if finite else self


def _overflows(low: Tensor, mirror: Tensor) -> bool:
    """Whether a result is infinite that float64 can hold."""
    return bool((low.isinf() & mirror.isfinite()).any())


def _local_error(call: OpCall, output: Tensor) -> float:
    """The error of one op on the inputs that it was really given; NaN for an op in place."""
    if call.written:
        return math.nan
    args = [replaced(value, lambda tensor: upcast(tensor, 0.0)) for value in call.args]
    kwargs = {
        name: replaced(value, lambda tensor: upcast(tensor, 0.0))
        for name, value in call.kwargs.items()
    }
    for truth in leaves(in_float64(call.op, args, kwargs)):
        if truth.shape == output.shape and truth.dtype is torch.float64:
            return relative_error(output, truth)
    return math.nan
