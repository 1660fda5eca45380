"""Executing parts of a kept step as they ran: values, training flags, and no compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import Module

from .references import GradientOf, Made, Outside

__all__ = ["eager", "thawed", "training"]


def thawed(
    value: object,
    made: Mapping[int, Sequence[Tensor]],
    outside: Callable[[Outside], Tensor],
    missing: type[Exception],
) -> object:
    """Return what a frozen argument stands for, inside plain containers too.

    Args:
        value: as it was frozen.
        made: what the entries made that were executed again, by number.
        outside: gives the tensor for one that nothing on the tape made.
        missing: raised when an earlier entry was not executed again.
    """
    if isinstance(value, Made):
        known = made.get(value.entry)
        if known is None or value.index >= len(known):
            raise missing("the loss uses something that was computed before this step")
        return known[value.index]
    if isinstance(value, Outside):
        return outside(value)
    if isinstance(value, GradientOf):
        if value.leaf.grad is None:
            raise missing("the loss uses a gradient that was computed before this step")
        return value.leaf.grad
    kind = type(value)
    if isinstance(value, list) and kind is list:
        return [thawed(item, made, outside, missing) for item in value]
    if isinstance(value, tuple) and kind is tuple:
        return tuple([thawed(item, made, outside, missing) for item in value])
    if isinstance(value, dict) and kind is dict:
        return {key: thawed(item, made, outside, missing) for key, item in value.items()}
    return value


@contextmanager
def training(module: Module, flag: bool) -> Iterator[None]:
    """Run the block with the training flag that the call had, if it was changed since."""
    if module.training == flag:
        yield
        return
    flags = [(part, part.training) for part in module.modules()]
    module.train(flag)
    try:
        yield
    finally:
        for part, before in flags:
            part.training = before


@contextmanager
def eager() -> Iterator[None]:
    """Run compiled models as they were written, where anything was compiled at all."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
