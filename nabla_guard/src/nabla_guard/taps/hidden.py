"""Keeping the compiler out of our own modes.

While a compiled function runs, ``torch.compile`` looks at every Python function that starts,
also at the handlers of modes that are on the stack, and would compile them: with the state of one
step burnt in, and again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch._C._dynamo.eval_frame as eval_frame

__all__ = ["CAN_HIDE", "hidden_from_compiler"]

HandlerT = TypeVar("HandlerT", bound=Callable[..., object])

CAN_HIDE = hasattr(eval_frame, "set_code_exec_strategy")
"""Whether this version of torch can be told, which costs nothing when the function is called."""


def hidden_from_compiler(handler: HandlerT) -> HandlerT:
    """Let ``handler`` and all that it calls always run as written; returns it unchanged."""
    if CAN_HIDE:
        skip = eval_frame._FrameAction.SKIP
        strategy = eval_frame._FrameExecStrategy(skip, skip)
        eval_frame.set_code_exec_strategy(handler.__code__, strategy)
    return handler
