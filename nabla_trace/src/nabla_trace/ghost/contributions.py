"""From a call with its gradients to the rows of its parameters, by the best rule there is."""

from __future__ import annotations

from collections.abc import Iterator

from torch.nn import Module

from .call import Call, Function, tensors_in
from .contribution import Contribution
from .generic_rows import generic_rows
from .layer_rows import LAYER_RULES
from .third_party import module_rows

__all__ = ["contributions", "has_rule"]


def has_rule(func: Function) -> bool:
    """Whether a function of torch has a rule of its own."""
    try:
        return func in LAYER_RULES
    except TypeError:  # a callable that cannot be hashed
        return False


def _complex(call: Call) -> bool:
    """Whether complex numbers are about: the rules do not conjugate."""
    for _, tensor in tensors_in(call.args, call.kwargs):
        if tensor.is_complex():
            return True
    return any(out.grad is not None and out.grad.is_complex() for out in call.outs)


def contributions(call: Call, budget: int) -> Iterator[Contribution]:
    """Yield the rows of every tracked argument.

    Args:
        call: with the gradients of its outputs and all layouts.
        budget: elements that temporaries may have.

    Raises:
        StructureDiffers: the samples cannot be told apart.
        InputError: the rule of a third party is wrong.
    """
    if isinstance(call.func, Module):
        yield from module_rows(call)
        return
    grad = call.outs[0].grad
    if has_rule(call.func) and len(call.outs) == 1 and grad is not None and not _complex(call):
        made = LAYER_RULES[call.func](call, grad, budget)
        found = [] if made is None else list(made)
        if len(found) == len(call.tracked):
            yield from found
            return
    yield from generic_rows(call, budget)
