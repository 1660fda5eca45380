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
    """Stops noting calls inside of loaders from the first batch on that took many.

    Of later batches of a loader without workers it is kept how they can be made again.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._many = False

    def install(self, patches: Patches) -> tuple[str, ...]:
        """Replace the choke point; return what this version of torch lacks."""
        self._many = False
        wrappers = {"__next__": self._wrap_next, "_next_index": self._wrap_index}
        return tuple(
            f"DataLoader.{name}"
            for name, wrap in wrappers.items()
            if not patches.replace(_BaseDataLoaderIter, name, wrap)
        )

    def _wrap_next(self, original: Replacement) -> Replacement:
        keeper = self._wire.keeper

        def __next__(iterator: object) -> object:
            if not keeper.enabled:
                return original(iterator)
            if self._many:
                batch = keeper.unnoted(original, iterator)
                keeper.kept.loaded.delivered(iterator, batch)
                return batch
            before = keeper.kept.noted
            batch = original(iterator)
            self._many = keeper.kept.noted - before > _MAX_NOTED
            return batch

        return __next__

    def _wrap_index(self, original: Replacement) -> Replacement:
        keeper = self._wire.keeper

        def _next_index(iterator: object) -> object:
            index = original(iterator)
            if self._many and keeper.enabled and hasattr(iterator, "_dataset_fetcher"):
                keeper.kept.loaded.fetching(index)
            return index

        return _next_index
