"""Batches that a loader makes in the process of the training itself, sample by sample.

Each sample is picked, changed and stacked by calls of torch, dozens in a step of which the training
has a few. They are noted only where they are few; else the batch counts as given from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.data.dataloader import _BaseDataLoaderIter

from .patching import Patches, Replacement

if TYPE_CHECKING:
    from .wire import Wire

__all__ = ["LoadingTap"]

_MAX_NOTED = 16  # calls of torch in one batch


class LoadingTap:
    """Stops noting calls inside of loaders from the first batch on that took many."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._many = False

    def install(self, patches: Patches) -> tuple[str, ...]:
        """Replace the choke point; return what this version of torch lacks."""
        self._many = False
        done = patches.replace(_BaseDataLoaderIter, "__next__", self._wrap_next)
        return () if done else ("DataLoader.__next__",)

    def _wrap_next(self, original: Replacement) -> Replacement:
        keeper = self._wire.keeper

        def __next__(iterator: object) -> object:
            if not keeper.enabled:
                return original(iterator)
            if self._many:
                return keeper.unnoted(original, iterator)
            before = keeper.kept.noted
            batch = original(iterator)
            self._many = keeper.kept.noted - before > _MAX_NOTED
            return batch

        return __next__
