"""Half precision as accelerators have it: tensors in the dtype, sums of an operation in float32.

Tensors really have the dtype, so that code which asks for it, or widens by itself, does what it
does in half precision. Operations that accumulate are computed in float32 and their result is
rounded once; that is also faster than the half kernels of a CPU, and does not depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from .tree import mapped

__all__ = ["Accumulating"]

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
        self._storages: set[int] = set()
        self._wide: dict[tuple[object, ...], Tensor] = {}
        self.operations = 0

    def remember(self, parameter: Tensor) -> None:
        """Widen a tensor once only: it stays alive and nobody writes to it."""
        if parameter.dtype is self._dtype:
            self._storages.add(parameter.untyped_storage().data_ptr())

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run one operation."""
        given = dict(kwargs or {})
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = _kind(func)
        if kind is _Kind.VIEW or kind is _Kind.MOVE:
            return func(*args, **given)
        dtypes = _dtypes_in(args)
        self.operations += bool(dtypes)
        narrow = bool(dtypes) and all(dtype is self._dtype for dtype in dtypes)
        if self._is_wide or not narrow or given.get("dtype") not in (None, self._dtype):
            return func(*args, **given)
        if kind is _Kind.POINTWISE or _writes(func):
            return self._as_it_is(func, tuple(args), given)
        return self._in_float32(func, tuple(args), given)

    def _as_it_is(
        self, func: OpOverload, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        try:
            return func(*args, **kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if "not implemented for" not in str(error) or _writes(func):
                raise
            return self._in_float32(func, args, kwargs)

    def _in_float32(
        self, func: OpOverload, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        leaves, form = tree_flatten((args, kwargs))
        wide_args, wide_kwargs = tree_unflatten([self._widened(leaf) for leaf in leaves], form)
        result = func(*wide_args, **wide_kwargs)
        return mapped(result, self._narrowed)

    def _widened(self, leaf: object) -> object:
        if isinstance(leaf, Tensor):
            if leaf.dtype is not self._dtype:
                return leaf
            if leaf.untyped_storage().data_ptr() not in self._storages:
                return leaf.to(torch.float32)
            key = (leaf.data_ptr(), leaf.shape, leaf.stride())
            if key not in self._wide:
                self._wide[key] = leaf.to(torch.float32)
            return self._wide[key]
        return torch.float32 if leaf is self._dtype else leaf  # the dtype of a result

    def _narrowed(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._dtype) if tensor.dtype is torch.float32 else tensor


def _dtypes_in(args: Sequence[object]) -> list[torch.dtype]:
    """Return the dtypes of the floating-point tensors among the arguments of an operation."""
    found: list[torch.dtype] = []
    for argument in args:
        if isinstance(argument, Tensor):
            if argument.is_floating_point():
                found.append(argument.dtype)
        elif isinstance(argument, (list, tuple)):
            found += _dtypes_in(argument)
    return found


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
