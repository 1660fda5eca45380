"""A root module as the express knows it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from torch.nn import Module

if TYPE_CHECKING:
    from types import CodeType

    from ..origin.root_state import RootState
    from .roots import RootRecord

__all__ = ["Stop"]


class Stop:
    """What is asked of a root module at each of its calls, looked up once.

    Attributes:
        ref: the module.
        state: what the keeper knows of it.
        root: what the loop knows of it; ``None`` for one without parameters.
        training: the mode in which it is called.
        code: of the user's function that called it last.
        told: the loop wants to hear of a call of it although it has no parameters.
        seen: its inside is looked into, where anything is.
    """

    __slots__ = ("code", "ref", "root", "seen", "state", "told", "training")

    def __init__(
        self, module: Module, state: RootState, root: RootRecord | None, seen: bool
    ) -> None:
        self.ref = weakref.ref(module)
        self.state = state
        self.root = root
        self.seen = seen
        self.told = seen and root is None
        self.training = module.training
        self.code: CodeType | None = None
