"""Half precision as accelerators have it: tensors in the dtype, sums of an operation in float32.

Tensors really have the dtype, so that code which asks for it, or widens by itself, does what it
does in half precision. Operations that accumulate are computed in float32 and their result is
rounded once; that is also faster than the half kernels of a CPU, and does not depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Accumulating", "moves_numbers", "unwatched"]

_MOVES = frozenset(
    {
        "_reshape_alias_copy",
        "_to_copy",
        "_unsafe_index",
        "alias",
        "as_strided",
        "cat",
        "clone",
        "constant_pad_nd",
        "copy_",
        "detach",
        "embedding",
        "empty",
        "empty_like",
        "empty_strided",
        "fill_",
        "flip",
        "full",
        "full_like",
        "gather",
        "index",
        "index_select",
        "masked_fill",
        "masked_fill_",
        "new_empty",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones",
        "ones_like",
        "repeat",
        "roll",
        "select_backward",
        "slice_backward",
        "stack",
        "tril",
        "triu",
        "where",
        "zero_",
        "zeros",
        "zeros_like",
    }
)
"""Operations that move numbers and compute none."""


class _Kind(Enum):
    VIEW = "a view"
    MOVE = "moves numbers"
    POINTWISE = "each result from one entry of each input"
    SUMS = "may accumulate"


class Accumulating(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes what accumulates in float32; active inside a ``with`` block.

    Attributes:
        operations: operations so far that computed floating-point numbers.

    Args:
        dtype: the dtype that results are rounded to, e.g. ``torch.float16``.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dtype = dtype
        self._is_wide = torch.finfo(dtype).bits >= 32
        self._kinds: dict[OpOverload, _Kind] = {}
        self._remembered: dict[int, tuple[Tensor, Tensor | None]] = {}
        self.operations = 0

    def remember(self, parameter: Tensor) -> None:
        """Widen a tensor once only: it stays alive and nobody writes to it."""
        is_whole = parameter.is_contiguous() and not parameter.storage_offset()
        if parameter.dtype is self._dtype and not self._is_wide and is_whole:
            self._remembered[parameter.untyped_storage().data_ptr()] = (parameter, None)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled in here, and the guard against it costs at every call

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run one operation."""
        given = kwargs or {}
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = _kind(func)
        if kind is _Kind.VIEW or kind is _Kind.MOVE:
            return func(*args, **given)
        computes, narrow = self._floats_in(args)
        self.operations += computes
        if self._is_wide or not (computes and narrow):
            return func(*args, **given)
        if given.get("dtype") not in (None, self._dtype):
            return func(*args, **given)
        if kind is _Kind.POINTWISE or _writes(func):
            return self._as_it_is(func, args, given)
        return self._in_float32(func, args, given)

    def _floats_in(self, args: Sequence[object]) -> tuple[bool, bool]:
        """Whether there is a floating-point tensor, and whether all of them have the dtype."""
        found, narrow = False, True
        for argument in args:
            if isinstance(argument, Tensor):
                if argument.is_floating_point():
                    found, narrow = True, narrow and argument.dtype is self._dtype
            elif isinstance(argument, (list, tuple)):
                inside, same = self._floats_in(argument)
                found, narrow = found or inside, narrow and same
        return found, narrow

    def _as_it_is(
        self, func: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        try:
            return func(*args, **kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if "not implemented for" not in str(error) or _writes(func):
                raise
            return self._in_float32(func, args, kwargs)

    def _in_float32(
        self, func: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        wide = [self._widened(argument) for argument in args]
        result = func(*wide, **{name: self._widened(value) for name, value in kwargs.items()})
        return self._narrowed(result)

    def _widened(self, value: object) -> object:
        if isinstance(value, Tensor):
            return self._wide_tensor(value) if value.dtype is self._dtype else value
        if isinstance(value, (list, tuple)):
            return [self._widened(part) for part in value]
        return torch.float32 if value is self._dtype else value  # the dtype of a result

    def _wide_tensor(self, tensor: Tensor) -> Tensor:
        """Return a tensor in float32; of what is remembered, the same view of one wide copy."""
        if tensor.is_sparse:
            return tensor.to(torch.float32)
        place = tensor.untyped_storage().data_ptr()
        narrow, wide = self._remembered.get(place, (None, None))
        if narrow is None:
            return tensor.to(torch.float32)
        if wide is None:
            wide = narrow.detach().to(torch.float32)
            self._remembered[place] = (narrow, wide)
        return wide.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def _narrowed(self, result: object) -> object:
        if isinstance(result, Tensor):
            return result.to(self._dtype) if result.dtype is torch.float32 else result
        if isinstance(result, (list, tuple)):
            return type(result)(self._narrowed(part) for part in result)
        return result


def unwatched() -> AbstractContextManager[object]:
    """Return a context in which no operation comes to a mode: for what is measured, not judged."""
    guard: AbstractContextManager[object] = torch._C._DisableTorchDispatch()
    return guard


def moves_numbers(func: OpOverload) -> bool:
    """Whether an operation moves numbers and computes none."""
    return _kind(func) in (_Kind.VIEW, _Kind.MOVE)


def _writes(func: OpOverload) -> bool:
    return bool(func._schema.is_mutable)


def _kind(func: OpOverload) -> _Kind:
    name = func._schema.name.partition("::")[2]
    returns = func._schema.returns
    if any(r.alias_info is not None and not r.alias_info.is_write for r in returns):
        return _Kind.VIEW
    if name in _MOVES:
        return _Kind.MOVE
    return _Kind.POINTWISE if torch.Tag.pointwise in func.tags else _Kind.SUMS
