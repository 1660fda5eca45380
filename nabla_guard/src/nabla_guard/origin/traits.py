"""What is known about ops by name: which put a constant, select, or multiply beyond the range."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch._ops import OpOverload

__all__ = [
    "OpTraits",
    "can_overflow",
    "is_meant",
    "is_selection",
    "name_of",
    "traits_of",
    "writes",
]

_CONSTANT = frozenset(
    {
        "clone",
        "constant_pad_nd",
        "copy",
        "empty",
        "empty_like",
        "empty_strided",
        "fill",
        "full",
        "full_like",
        "index_fill",
        "lift_fresh",
        "masked_fill",
        "masked_scatter",
        "new_empty",
        "new_empty_strided",
        "new_full",
        "scalar_tensor",
        "where",
    }
)
_NO_VALUES = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_SELECTION = frozenset(
    {
        "amax",
        "amin",
        "clamp",
        "clamp_max",
        "clamp_min",
        "constant_pad_nd",
        "embedding",
        "fill",
        "gather",
        "hardtanh",
        "index",
        "index_copy",
        "index_fill",
        "index_put",
        "index_select",
        "masked_fill",
        "masked_scatter",
        "masked_select",
        "max",
        "maximum",
        "min",
        "minimum",
        "nan_to_num",
        "nanmean",
        "nansum",
        "relu",
        "scatter",
        "select_scatter",
        "slice_scatter",
        "sort",
        "threshold",
        "topk",
        "where",
        "zero",
    }
)
_OVERFLOWING = frozenset(
    {
        "_to_copy",
        "add",
        "addbmm",
        "addcmul",
        "addmm",
        "addmv",
        "baddbmm",
        "bmm",
        "convolution",
        "cosh",
        "cumprod",
        "cumsum",
        "dot",
        "exp",
        "exp2",
        "expm1",
        "linalg_vector_norm",
        "mean",
        "mkldnn_convolution",
        "mm",
        "mul",
        "mv",
        "native_group_norm",
        "norm",
        "pow",
        "prod",
        "sinh",
        "square",
        "sub",
        "sum",
        "var",
        "var_mean",
    }
)


class OpTraits(NamedTuple):
    """What the schema of an op says of every call of it.

    Attributes:
        name: plain name: ``aten::div_.Tensor`` gives ``div``.
        is_view: its outcome shares the memory of an argument.
        is_lift: it hands a tensor made of Python numbers (``torch.tensor``) to the program.
        is_pointwise: each value of the outcome is made of those at the same position.
        written: position and name of each argument that it changes in place.
        outs: names of those that it only writes to, whatever they held before.
    """

    name: str
    is_view: bool
    is_lift: bool
    is_pointwise: bool
    written: tuple[tuple[int, str], ...]
    outs: frozenset[str]


_LIFTS = ("aten::lift", "aten::lift_fresh", "aten::lift_fresh_copy")


@lru_cache(maxsize=4096)
def traits_of(op: OpOverload) -> OpTraits:
    """Read the schema of an op, once: each look at it makes new objects."""
    schema = op._schema
    full = schema.name
    name = full.rpartition("::")[2]
    arguments = enumerate(schema.arguments) if schema.is_mutable else ()
    return OpTraits(
        name=name[:-1] if name.endswith("_") and not name.endswith("__") else name,
        is_view=op.is_view,
        is_lift=full in _LIFTS,
        is_pointwise=torch.Tag.pointwise in op.tags,
        written=tuple(
            (position, argument.name)
            for position, argument in arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        ),
        outs=frozenset(a.name for a in schema.arguments if a.is_out),
    )


def name_of(op: OpOverload) -> str:
    """Return the plain name of an op: ``aten::div_.Tensor`` gives ``div``."""
    return traits_of(op).name


def is_meant(
    name: str, args: Sequence[object], kwargs: Mapping[str, object], *, has_nan: bool
) -> bool:
    """Whether a bad value was put there on purpose, by a constant of the program.

    Arithmetic with an infinite constant is meant as long as it gives infinities: zero times minus
    infinity is the classic mask that is none.
    """
    if name in _NO_VALUES or (name in _CONSTANT and name != "where"):
        return True
    return not has_nan and any(_is_infinite(value) for value in (*args, *kwargs.values()))


def is_selection(name: str) -> bool:
    """Whether an op picks values instead of computing with all of them."""
    return name in _SELECTION


def can_overflow(name: str) -> bool:
    """Whether an infinity out of finite inputs means that the range of the dtype was left."""
    return name in _OVERFLOWING


def writes(op: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Tensor]:
    """Return the tensors that an op is going to change in place."""
    found: list[Tensor] = []
    for position, name in traits_of(op).written:
        value = args[position] if position < len(args) else kwargs.get(name)
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(item for item in value if isinstance(item, Tensor))
    return found


def _is_infinite(value: object) -> bool:
    return type(value) is float and not math.isfinite(value)
