"""One module computed in a wider type, whatever the model around it is computed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import Module

__all__ = ["widened"]

Forward = Callable[..., object]


class _Inner(Module):
    """Calls the forward function of another module, past its hooks, which have run already.

    Args:
        module: whose parameters may be replaced for one call.
        forward: its own forward function.
    """

    def __init__(self, module: Module, forward: Forward) -> None:
        super().__init__()
        self.module = module
        self._call = forward

    def forward(self, *args: object, **kwargs: object) -> object:
        """Pass everything on."""
        return self._call(*args, **kwargs)


@contextmanager
def widened(
    module: Module, dtype: torch.dtype, active: Callable[[], bool], *, keep: bool
) -> Iterator[None]:
    """Compute a module in another floating-point type while the block lasts.

    Its inputs, parameters and buffers are converted for each call and autocast is off inside; the
    gradients of the parameters arrive in their own type.

    Args:
        module: its ``forward`` is replaced on the instance, and put back.
        dtype: type to compute in.
        active: whether to do so now.
        keep: let the output go on in that type; else it is converted to that of the input.
    """
    own: Forward = module.forward
    inner = _Inner(module, own)

    def forward(*args: object, **kwargs: object) -> object:
        if not active():
            return own(*args, **kwargs)
        narrow = _first_type((args, kwargs))
        with torch.autocast(_device(module, args), enabled=False):
            output = _call(inner, dtype, _cast(args, dtype), _cast(kwargs, dtype))
        return output if keep or narrow is None else _cast(output, narrow)

    had = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if had is not None:
            module.forward = had


def _call(inner: _Inner, dtype: torch.dtype, args: object, kwargs: object) -> object:
    module = inner.module
    wide = {f"module.{name}": _cast(one, dtype) for name, one in module.named_parameters()}
    buffers = {name: one for name, one in module.named_buffers() if one.is_floating_point()}
    copies = {name: one.to(dtype, copy=True) for name, one in buffers.items()}
    wide.update({f"module.{name}": copy for name, copy in copies.items()})
    output = functional_call(inner, wide, args, kwargs)  # type: ignore[arg-type]
    with torch.no_grad():
        for name, buffer in buffers.items():
            buffer.copy_(copies[name])  # running statistics go on
    return output


def _cast(value: object, dtype: torch.dtype) -> object:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {name: _cast(one, dtype) for name, one in value.items()}
    if isinstance(value, (tuple, list)):
        make = getattr(type(value), "_make", type(value))
        return make([_cast(one, dtype) for one in value])
    return value


def _first_type(value: object) -> torch.dtype | None:
    if isinstance(value, Tensor):
        return value.dtype if value.is_floating_point() else None
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        found = (_first_type(one) for one in value)
        return next((dtype for dtype in found if dtype is not None), None)
    return None


def _device(module: Module, args: tuple[object, ...]) -> str:
    tensors = (*module.parameters(), *(one for one in args if isinstance(one, Tensor)))
    return next((one.device.type for one in tensors), "cpu")
