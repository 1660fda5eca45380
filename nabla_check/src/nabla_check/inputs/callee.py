"""What is called: a function, a custom operator, a module or a method of a module."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import nn

from nabla_core.errors import UsageError

__all__ = ["Callee", "Function"]

Function = Callable[..., object]


class Callee:
    """A callable whose module state, if any, is passed in, so that the module stays untouched.

    Args:
        function: the candidate or the reference.
        module: module whose parameters are swapped during a call; by default the one that
            ``function`` is, or is a method of.

    Raises:
        UsageError: ``function`` cannot be called.
    """

    def __init__(self, function: Function, module: nn.Module | None = None) -> None:
        if not callable(function):
            raise UsageError(
                f"candidate is {type(function).__name__}: give a function, an autograd.Function's "
                "apply, a custom operator or a module"
            )
        self.function = function
        self.module = module if module is not None else owning_module(function)
        self.name = name_of(function)
        self._host = None if self.module is None else _Host(self.module)

    def parameters(self) -> dict[str, torch.Tensor]:
        """Parameters of the module by name."""
        return {} if self.module is None else dict(self.module.named_parameters())

    def buffers(self) -> dict[str, torch.Tensor]:
        """Buffers of the module by name."""
        return {} if self.module is None else dict(self.module.named_buffers())

    def state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers of the module by name."""
        return {**self.parameters(), **self.buffers()}

    def __call__(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        state: Mapping[str, torch.Tensor],
    ) -> object:
        """Call with ``state`` in place of the module's parameters and buffers."""
        if self._host is None:
            return self.function(*args, **kwargs)
        swapped = {f"owner.{name}": tensor for name, tensor in state.items()}
        return torch.func.functional_call(self._host, swapped, (self.function, args, kwargs))


class _Host(nn.Module):
    """Lets ``functional_call`` swap the state of ``owner`` around any call, also of its methods."""

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        self.owner = owner

    def forward(
        self, function: Function, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        return function(*args, **kwargs)


def owning_module(function: Function) -> nn.Module | None:
    """Return the module that ``function`` is, or is a bound method of."""
    if isinstance(function, nn.Module):
        return function
    owner = getattr(function, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


def name_of(function: Function) -> str:
    """Return how messages call ``function``, e.g. ``"Square.apply"``."""
    if isinstance(function, nn.Module):
        return type(function).__name__
    owner = getattr(function, "__self__", None)
    if isinstance(function, types.BuiltinFunctionType) and owner is not None:
        return f"{function.__module__}.{function.__name__}"
    if isinstance(owner, type):
        return f"{owner.__name__}.{getattr(function, '__name__', 'call')}"
    named = getattr(function, "__qualname__", None) or getattr(function, "_qualname", None)
    if named is None and hasattr(function, "name") and callable(function.name):
        named = function.name()
    return str(cast(object, named) or type(function).__name__).replace("<locals>.", "")
