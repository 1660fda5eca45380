"""Which ops are computed in float64, and with which arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn import Parameter
from torch.nn.parameter import Buffer

from ..origin.traits import name_of, writes
from .limits import LOW
from .registry import ShadowRule, registered

__all__ = ["Treatment", "in_float64", "is_low", "is_plain", "replaced", "treatment_of"]


class Treatment(Enum):
    """What is done about an op."""

    VIEW = "shares the memory of its input, and so the mirror of it"
    MIRROR = "computed in float64"
    MOVE = "only moves values: computed in float64 where it moves mirrored ones"
    ACCURATE = "computed in float64, and its own error is left out"
    DROP = "its result counts as exact"
    FILL = "a constant of the program: exact, also where what enters the region is moved"


_DROP = frozenset(
    {
        "bernoulli",
        "ceil",
        "empty",
        "empty_like",
        "empty_strided",
        "fake_quantize_per_channel_affine_cachemask",
        "fake_quantize_per_tensor_affine_cachemask",
        "floor",
        "floor_divide",
        "fmod",
        "frac",
        "heaviside",
        "multinomial",
        "new_empty",
        "new_empty_strided",
        "rand_like",
        "randn_like",
        "remainder",
        "round",
        "sign",
        "sgn",
        "trunc",
    }
)
_FILL = frozenset(
    {
        "arange",
        "eye",
        "full",
        "full_like",
        "linspace",
        "logspace",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones",
        "ones_like",
        "scalar_tensor",
        "zeros",
        "zeros_like",
    }
)
_MOVE = frozenset(
    {
        "_unsafe_view",
        "cat",
        "clone",
        "constant_pad_nd",
        "embedding",
        "flip",
        "gather",
        "index",
        "index_select",
        "masked_select",
        "relu",
        "repeat",
        "reshape",
        "roll",
        "stack",
        "take",
        "unfold_copy",
        "unsafe_split",
    }
)
_ACCURATE = frozenset(
    {
        "_log_softmax",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "log_sigmoid_forward",
        "logsumexp",
        "native_group_norm",
        "softplus",
    }
)
_KNOWN: dict[OpOverload, Treatment] = {}


def treatment_of(op: OpOverload) -> Treatment:
    """Return what is done about an op.

    Rounding to integers, signs, remainders and random draws have no nearby float64 value, so that
    what they give counts as exact. The fused losses of torch are as accurate as their argument
    allows: what is lost where they approach zero is no fault of the program.
    """
    known = _KNOWN.get(op)
    if known is None:
        known = _KNOWN[op] = _decide(op)
    return known


def _decide(op: OpOverload) -> Treatment:
    name = name_of(op)
    if op.is_view:
        return Treatment.VIEW
    if name in _FILL:
        return Treatment.FILL
    if torch.Tag.nondeterministic_seeded in op.tags or name in _DROP:
        return Treatment.DROP
    if name in _MOVE:
        return Treatment.MOVE
    return Treatment.ACCURATE if name in _ACCURATE else Treatment.MIRROR


def is_low(value: object) -> bool:
    """Whether a value is a tensor that has a shadow."""
    return isinstance(value, Tensor) and value.dtype in LOW


def is_plain(value: Tensor) -> bool:
    """Whether a tensor is an ordinary one, whose numbers lie in its memory as they are."""
    return (
        type(value) in (Tensor, Parameter, Buffer)
        and value.layout is torch.strided
        and not value.is_complex()
        and not value.is_quantized
        and value.device.type != "meta"
    )


def replaced(value: object, change: Callable[[Tensor], Tensor]) -> object:
    """Return an argument with every low-precision tensor in it changed."""
    if isinstance(value, Tensor):
        return change(value) if value.dtype in LOW else value
    if isinstance(value, (list, tuple)):
        return [replaced(item, change) for item in value]
    if isinstance(value, torch.dtype):
        return torch.float64 if value in LOW else value
    return value


def in_float64(
    op: OpOverload,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> object:
    """Call an op whose arguments are in float64 already.

    Raises:
        Exception: whatever the op or its registered rule raises.
    """
    rule: ShadowRule | None = registered(op._schema.name)
    with torch.no_grad():
        if rule is not None and not writes(op, args, kwargs):
            return rule(*args, **kwargs)
        if op._schema.name in ("aten::_softmax", "aten::_log_softmax"):
            args = (*args[:2], False)  # there is no wider result than that of a float64 argument
        return op(*args, **kwargs)
