"""Modules whose own mode is not that of what they are made of.

``train()`` sets the mode of a module and of all below it. An assignment to ``training`` sets one
flag, and a ``train`` that does not call the inherited one reaches nothing: the module then reports
a mode that none of its layers is in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch.nn import Module

from ..facts import ModuleFacts
from ..loop.watch import Watch

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["ModeSplitWatch", "is_split"]

_SEVERAL = 2


def is_split(module: Module) -> bool:
    """Whether every module below ``module`` is in the other mode."""
    children = list(module.children())
    if not children or children[0].training is module.training:
        return False
    below = list(module.modules())[1:]
    return all(found.training is not module.training for found in below)


class ModeSplitWatch(Watch):
    """Notes root modules in training mode all of whose parts are in evaluation mode."""

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self._split: set[int] = set()
        self._parts: dict[int, int] = {}

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`: the flag of the root changes at an evaluation."""
        return frozenset() if self._parts else frozenset({"forward_ended", "step_ended"})

    def parts(self, module: ModuleFacts) -> int:
        """How many modules below are in evaluation mode, if all of them were at a call since the
        last step; else 0."""
        return self._parts[id(module)] if id(module) in self._split else 0

    def are_frozen(self, module: ModuleFacts) -> bool:
        """Whether all that depends on the mode lies in parts that take no gradients, as in a
        linear probe: a frozen body is meant to stay as it is."""
        for root in self.loop.roots.now.values():
            found = root.ref()
            if root.facts is module and found is not None:
                switches = {id(part) for ref in root.switches if (part := ref()) is not None}
                return bool(switches) and not _thawed(found, switches)
        return False

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """Note it, unless a wrapper froze its only part, or a ``train`` of its own does so."""
        if not module.training or not torch.is_grad_enabled():
            return
        if type(module).train is not Module.train or not is_split(module):
            return
        if len(list(module.children())) >= _SEVERAL:
            self._split.add(id(root.facts))
            self._parts[id(root.facts)] = len(list(module.modules())) - 1

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Start a new step."""
        if self._split:
            self._split.clear()


def _thawed(module: Module, switches: set[int]) -> bool:
    """Whether one of these modules belongs to a part that takes gradients, or to none."""
    own = list(module.parameters())
    if own and not any(parameter.requires_grad for parameter in own):
        return False
    return id(module) in switches or any(_thawed(part, switches) for part in module.children())
