"""The optimizers that were given a state dict, and whether they are the ones that go on."""

from __future__ import annotations

import weakref

from torch.optim import Optimizer

from ..taps.optimizers import parameters_of

__all__ = ["RestoredOwners"]


class RestoredOwners:
    """Notes, after a checkpoint was opened, who was restored, who stepped, and who began anew.

    Only the ``id`` of the parameters is kept: they belong to a model that lives on.
    """

    def __init__(self) -> None:
        self._restored: list[tuple[weakref.ref[Optimizer], tuple[int, ...]]] = []
        self._anew: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def note_restored(self, optimizer: Optimizer) -> None:
        """Note that ``optimizer`` was given a state dict."""
        self._restored.append((weakref.ref(optimizer), _key(optimizer)))

    def note_step(self, optimizer: Optimizer) -> None:
        """Note that ``optimizer`` is about to step, and whether it has a state by then."""
        if optimizer not in self._stepped:
            self._stepped.add(optimizer)
            if not optimizer.state:
                self._anew.add(optimizer)

    def was_remade(self, optimizer: Optimizer) -> bool:
        """Whether ``optimizer`` began without a state, in place of one that was restored for the
        same parameters, never stepped since, and is not wrapped by it."""
        if optimizer not in self._anew:
            return False
        mine = _key(optimizer)
        held = [owner() for owner, key in self._restored if key == mine]
        if not held:
            return False
        wrapped = [*vars(optimizer).values()]
        return not any(
            owner is not None
            and (owner is optimizer or owner in self._stepped or any(owner is w for w in wrapped))
            for owner in held
        )


def _key(optimizer: Optimizer) -> tuple[int, ...]:
    return tuple(map(id, parameters_of(optimizer)))
