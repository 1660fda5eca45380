"""A forked child owns nothing of the parent's run: its copies of the descriptors are closed.

A worker of a data loader would otherwise write into the log of the trainer, and would keep its lock
after the trainer has died.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Abandonable", "abandon_in_children"]


class Abandonable(Protocol):
    """Something that a forked child must let go of."""

    def abandon(self) -> None:
        """Close descriptors; take no lock, write nothing."""


_owned: WeakSet[Abandonable] = WeakSet()


def abandon_in_children(owner: Abandonable) -> None:
    """Let go of ``owner`` in every child that is forked from now on."""
    _owned.add(owner)


def _abandon_all() -> None:
    for owner in list(_owned):
        owner.abandon()


os.register_at_fork(after_in_child=_abandon_all)
