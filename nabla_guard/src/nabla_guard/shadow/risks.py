"""Numbers that are still finite, but close to the end of their dtype's range."""

from __future__ import annotations

from types import CodeType

import torch

from ..taps.place import user_line
from .findings import RangeRisk, RiskKind
from .limits import ShadowLimits, dtype_name, exp_limit, smallest_normal
from .mode import OpCall

__all__ = ["RiskObserver"]

_EXPONENTIALS = frozenset({"exp", "expm1", "cosh", "sinh"})
_SHRINKING = frozenset({"cumprod", "exp", "exp2", "mul", "pow", "prod", "sigmoid", "square"})
_NEVER = frozenset({"masked_fill", "where", "fill", "clamp", "clamp_min", "clamp_max", "copy"})


class RiskObserver:
    """Looks at arguments of ``exp`` and at results in float16.

    Args:
        limits: how near is too near.
        until: code outside of which no line of the program lies.
    """

    def __init__(self, limits: ShadowLimits, until: CodeType) -> None:
        self.risks: list[RangeRisk] = []
        self._limits = limits
        self._until = until
        self._known: set[tuple[str, str | None]] = set()

    def before(self, call: OpCall) -> None:
        """See :class:`.mode.Observer`: an op in place overwrites its argument."""
        if call.name in _EXPONENTIALS and call.inputs[0].numel():
            dtype = call.inputs[0].dtype
            value, limit = float(call.inputs[0].detach().amax()), exp_limit(dtype)
            if self._limits.exp_share * limit < value <= limit:
                self._add("exp", call, value, limit)

    def after(self, call: OpCall) -> None:
        """See :class:`.mode.Observer`."""
        if call.name in _NEVER:
            return
        for tensor, _ in call.outputs:
            if tensor.dtype is torch.float16 and tensor.numel():
                self._look_at_range(call, tensor)
        self._look_at_flush(call)

    def _look_at_flush(self, call: OpCall) -> None:
        """Report a result that float64 can hold, and of which the dtype holds next to nothing."""
        if call.name not in _SHRINKING:
            return
        for tensor, mirror in call.outputs:
            smallest = smallest_normal(tensor.dtype)
            value = _largest(mirror) if mirror.numel() else 0.0
            inputs = [_largest(given) for given in call.inputs if given.dtype is tensor.dtype]
            if 0.0 < value < smallest and all(given >= smallest for given in inputs):
                self._add("flush", call, value, smallest)

    def _look_at_range(self, call: OpCall, tensor: torch.Tensor) -> None:
        """Report a result near the largest float16, unless an input was there already."""
        largest = torch.finfo(tensor.dtype).max
        near = largest / self._limits.headroom_ratio
        value = _largest(tensor)
        if not near < value < largest:  # the largest number itself is a mask
            return
        inputs = [_largest(given) for given in call.inputs if given.dtype is tensor.dtype]
        if all(given <= near for given in inputs):
            self._add("range", call, value, largest)

    def _add(self, kind: RiskKind, call: OpCall, value: float, limit: float) -> None:
        key = (call.name, call.module)
        if key in self._known:
            return
        self._known.add(key)
        line = user_line(self._until) or call.line
        self.risks.append(
            RangeRisk(
                kind=kind,
                op=call.name,
                place=line.place if line else None,
                module=call.module,
                value=value,
                limit=limit,
                dtype=dtype_name(call.inputs[0].dtype),
            )
        )


def _largest(tensor: torch.Tensor) -> float:
    lowest, highest = torch.aminmax(tensor.detach()) if tensor.numel() else (0.0, 0.0)
    return max(-float(lowest), float(highest))
