"""Whether a number leaves the range on the way to a result that is finite again.

A sum of squares that overflows turns ``x / inf`` into zero: the output has a relative error of one
and nothing in it is infinite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from .accumulating import moves_numbers
from .alone import Cast, run_alone
from .calls import Frame
from .exact import top
from .tree import mapped, tensors_in

__all__ = ["overflows_inside"]


def overflows_inside(frame: Frame, cast: Cast) -> bool:
    """Run the module of ``frame`` forwards once more and look at every operation.

    Args:
        frame: a call in the reference pass.
        cast: dtype to run in.
    """
    watch = _RangeWatch(cast.dtype)
    with watch:
        run_alone(frame, cast, {})
    return watch.overflows


class _RangeWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks for an operation that makes an infinity where wider numbers hold the result."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.overflows = False
        self._dtype = dtype
        self._largest = float(torch.finfo(dtype).max)

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run one operation, and again in float64 if its result is infinite."""
        given = kwargs or {}
        out = func(*args, **given)
        narrow = isinstance(out, Tensor) and out.dtype is self._dtype
        if not self.overflows and narrow and not _is_finite([out]):
            self.overflows = self._holds_in_float64(func, tuple(args), given)
        return out

    def _holds_in_float64(
        self, func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> bool:
        if func is torch.ops.aten._to_copy.default:
            return _is_finite(tensors_in(args))
        if func._schema.is_mutable or moves_numbers(func) or not _is_finite(tensors_in(args)):
            return False  # what is moved may be a mask
        try:
            exact = func(*mapped(args, lambda tensor: tensor.double()), **kwargs)
        except RuntimeError:  # not there for float64
            return False
        found = tensors_in(exact)
        return _is_finite(found) and any(top(tensor) > self._largest for tensor in found)


def _is_finite(tensors: Sequence[object]) -> bool:
    return all(bool(torch.isfinite(t).all()) for t in tensors if isinstance(t, Tensor))
