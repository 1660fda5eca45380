"""Float64 rules of ops that cannot be mirrored by calling them with float64 arguments."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from nabla_core.errors import UsageError

__all__ = ["ShadowRule", "registered", "shadow_rule"]

ShadowRule = Callable[..., "Tensor | tuple[Tensor | None, ...]"]
"""Takes the op's arguments, tensors in float64; returns its results in float64."""

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")
_RULES: dict[str, ShadowRule] = {}


def shadow_rule(op: str) -> Callable[[ShadowRule], ShadowRule]:
    """Register the function below as the float64 rule of an op.

    The function gets the op's arguments as the op does, every low-precision tensor in float64, and
    returns the result in float64: a tensor, or one per output, with ``None`` where an output has no
    float64 value. It must not change its arguments. A rule for an op that nabla has a rule for
    already is an error.

    Args:
        op: name with namespace, without overload, e.g. ``"mylib::scan"``.

    Raises:
        UsageError: the name is malformed, the op has a rule, or no function follows.

    Example::

        @nabla.shadow_rule("mylib::logsumexp2")
        def logsumexp2(x, dim):
            return torch.logsumexp(x * math.log(2), dim) / math.log(2)
    """
    if not isinstance(op, str) or not _NAME.fullmatch(op):
        raise UsageError(
            f"shadow_rule({op!r}): needs the name of an op with its namespace and without "
            'overload, like "aten::exp"'
        )
    if op in _RULES:
        raise UsageError(
            f"shadow_rule({op!r}): {op} has a rule already ({_RULES[op].__module__}."
            f"{_RULES[op].__qualname__}); one op has one rule"
        )

    def register(rule: ShadowRule) -> ShadowRule:
        if not callable(rule):
            raise UsageError(f"shadow_rule({op!r}): put it above a function, not {rule!r}")
        _RULES[op] = rule
        return rule

    return register


def registered(op: str) -> ShadowRule | None:
    """Return the rule of an op, if it has one."""
    return _RULES.get(op)


@shadow_rule("aten::mkldnn_rnn_layer")
def _lstm_layer(*arguments: object) -> tuple[Tensor | None, ...]:
    """One layer and direction of an LSTM, whose fused kernel knows float32 only."""
    inputs, w_ih, w_hh, b_ih, b_hh, hidden, cell, reverse, _, _, _, _, biases, *_ = arguments
    several = [value for value in (w_ih, w_hh, b_ih, b_hh) if isinstance(value, Tensor)]
    weights = several if biases else several[:2]
    if not isinstance(inputs, Tensor):
        raise TypeError("the input of an LSTM layer is no tensor")
    sequence = inputs.flip(0) if reverse else inputs
    states = [value for value in (hidden, cell) if isinstance(value, Tensor)]
    states = [value if value.dim() == inputs.dim() else value.unsqueeze(0) for value in states]
    output, last_hidden, last_cell = torch.lstm(
        sequence, states, weights, bool(biases), 1, 0.0, False, False, False
    )
    return (output.flip(0) if reverse else output), last_hidden, last_cell, None


@shadow_rule("aten::_scaled_dot_product_flash_attention")
def _flash(
    query: Tensor, key: Tensor, value: Tensor, *rest: object, **named: object
) -> tuple[Tensor]:
    return (_attention((query, key, value), None, rest, named.get("scale")),)


@shadow_rule("aten::_scaled_dot_product_efficient_attention")
@shadow_rule("aten::_scaled_dot_product_cudnn_attention")
def _with_bias(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *rest: object, **named: object
) -> tuple[Tensor]:
    return (_attention((query, key, value), bias, rest[1:], named.get("scale")),)


def _attention(
    inputs: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    rest: tuple[object, ...],
    scale: object,
) -> Tensor:
    """Fused attention without dropout; ``rest`` begins with the rate of dropout and is_causal."""
    if rest and rest[0]:
        raise ValueError("its dropout mask is drawn inside of the fused kernel")
    return torch.nn.functional.scaled_dot_product_attention(
        *inputs,
        attn_mask=bias,
        is_causal=len(rest) > 1 and bool(rest[1]),
        scale=scale if isinstance(scale, float) else None,
    )
