"""The wire between the taps of torch and the listeners: cut for good when the taps are removed.

A replacement that somebody else has replaced in turn cannot be taken out of torch again. It stays
underneath, and its wire is dead: the next installation makes new taps on a new wire, so that
nothing is told twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from ..origin.keeper import Keeper
from .inside import Insider
from .listener import Listener

if TYPE_CHECKING:
    from ..loop.express import Express

__all__ = ["DECLINED", "Derived", "Wire"]

DECLINED = object()
"""What an express returns for a call that it did not make."""

Derived = Callable[[Sequence[Tensor], tuple[object, ...], object], None]
"""Is told of a derivative that wrote no gradient: its outputs, the engine's further arguments, and
the result."""


class Wire:
    """What a tap needs while it is installed.

    Attributes:
        listeners: who is told, in the order in which they were attached.
        insiders: who may look inside root modules; the first one that wants to does.
        keeper: keeps the calls of a step, so that it can be executed again.
        drop: takes off a listener that raised, and tells it so; the training goes on.
        heal: forgets what was interrupted; called before each step.
        derived: is told of derivatives that write no gradient, such as ``torch.autograd.grad``.
        express: takes over at the doors while nothing happens that is not expected.
    """

    __slots__ = ("derived", "drop", "express", "heal", "insiders", "keeper", "listeners")

    def __init__(
        self,
        keeper: Keeper,
        drop: Callable[[Listener, Exception], None],
        heal: Callable[[], None],
    ) -> None:
        self.listeners: tuple[Listener, ...] = ()
        self.insiders: tuple[Insider, ...] = ()
        self.express: Express | None = None
        self.derived: Derived | None = None
        self.keeper = keeper
        self.drop = drop
        self.heal = heal

    def cut(self) -> None:
        """Let the taps on this wire pass everything on, and nothing else."""
        self.listeners = ()
        self.insiders = ()
        self.express = None
        self.derived = None
        self.keeper = Keeper()
