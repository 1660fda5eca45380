"""Says which modules are entered and left, to whoever follows an execution of the user's code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.nn import Module
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

__all__ = ["module_calls"]


@contextmanager
def module_calls(
    entered: Callable[[Module, object], None], left: Callable[[Module, object, object], None]
) -> Iterator[None]:
    """Tell of every call of a module during the block.

    Args:
        entered: told of the module and its arguments, before its own hooks run.
        left: told of the module, its arguments and its output, also when it raised; the module's
            own hooks run after it.
    """
    handles = (
        register_module_forward_pre_hook(entered),
        register_module_forward_hook(left, always_call=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
