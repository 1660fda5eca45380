"""Loaders that are made anew in each epoch, taken together."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from .loader_facts import LoaderFacts

__all__ = ["LoaderSeries"]


class LoaderSeries:
    """Finds the loader that a new one continues: alike, over the same dataset, and gone by now.

    Two loaders that live side by side are two loaders, whatever they have in common.
    """

    def __init__(self) -> None:
        self._latest: dict[int, list[tuple[LoaderFacts, weakref.ref[object]]]] = {}
        self._datasets: dict[int, weakref.ref[object]] = {}

    def join(self, loader: DataLoader[object], facts: LoaderFacts) -> LoaderFacts:
        """Return the facts of the loader that ``loader`` continues, or ``facts``.

        Args:
            loader: a new loader.
            facts: what it says of itself.
        """
        dataset: object = loader.dataset
        try:
            reference = weakref.ref(dataset)
        except TypeError:  # a list cannot be told from the next one at its address
            return facts
        key = id(dataset)
        known = self._datasets.get(key)
        if known is None or known() is not dataset:
            self._datasets[key], self._latest[key] = reference, []
        series = self._latest[key]
        for index, (earlier, alive) in enumerate(series):
            if alive() is None and _alike(earlier, facts):
                series[index] = (earlier, weakref.ref(loader))
                return earlier
        series.append((facts, weakref.ref(loader)))
        return facts


def _alike(one: LoaderFacts, two: LoaderFacts) -> bool:
    return (one.sampler, one.shuffles, one.batches, one.samples, one.workers) == (
        two.sampler,
        two.shuffles,
        two.batches,
        two.samples,
        two.workers,
    )
