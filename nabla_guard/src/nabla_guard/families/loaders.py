"""What data loaders deliver: in which order, how much of it, and with which randomness.

Only the lists of indices are looked at, which the loader makes in the parent process also when
workers load the data; no sample is touched.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ..facts import OptimizerFacts
from ..loop.watch import Watch
from ..taps.patching import Patches, Replacement
from ..taps.place import user_place
from .held_generators import generators_in
from .loader_facts import EpochFacts, LoaderFacts
from .loader_series import LoaderSeries
from .worker_copies import WorkerCopies

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["LoaderWatch", "describe_loader"]

_KEPT_EPOCHS = 8
_KEPT_BATCHES = 4096


class LoaderWatch(Watch):
    """Follows every loader that the program iterates over.

    Attributes:
        loaders: what is known of each.
        news: loaders of which an iterator was made since a detector last looked.
    """

    patient = frozenset({"forward_ended", "step_ended"})

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.loaders: list[LoaderFacts] = []
        self.news: list[LoaderFacts] = []
        self._known: weakref.WeakKeyDictionary[object, LoaderFacts] = weakref.WeakKeyDictionary()
        self._running: weakref.WeakKeyDictionary[object, EpochFacts] = weakref.WeakKeyDictionary()
        self._series = LoaderSeries()
        self._steps: dict[int, list[tuple[OptimizerFacts, int]]] = {}
        self._given = 0
        self._last = -1  # the last index that was asked for
        self._copies = WorkerCopies()
        self._stepped = False
        self._latest: EpochFacts | None = None
        self._opening: EpochFacts | None = None  # with workers, making one asks for indices

    def start(self, patches: Patches) -> None:
        """Follow the making of iterators and what they ask of their sampler."""
        patches.replace(DataLoader, "__iter__", self._wrap_iter)
        patches.replace(_BaseDataLoaderIter, "_next_index", self._wrap_index)
        patches.replace(_BaseDataLoaderIter, "__next__", self._wrap_next)

    def stop(self) -> None:
        """The last epochs are over."""
        for facts in self.loaders:
            self._ended(facts)

    def _wrap_iter(self, original: Replacement) -> Replacement:
        def iterate(loader: object) -> object:
            begun = EpochFacts()
            self.guarded(lambda: self._begin(loader, begun))
            self._opening = begun
            iterator = original(loader)
            self.guarded(lambda: self._running.__setitem__(iterator, begun))
            self._opening = None
            return iterator

        return iterate

    def _wrap_index(self, original: Replacement) -> Replacement:
        def next_index(iterator: object) -> object:
            index = original(iterator)
            self.guarded(lambda: self._ordered(iterator, index))
            return index

        return next_index

    def _wrap_next(self, original: Replacement) -> Replacement:
        def following(iterator: object) -> object:
            batch = original(iterator)
            epoch = self._running.get(iterator)
            if epoch is not None:
                epoch.given += 1
                self._given += 1
                self._latest = epoch
                if self._copies.watches:
                    self.guarded(lambda: self._copies.given(epoch, batch))
            return batch

        return following

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """Tell evaluation from training."""
        if self._latest is not None and not torch.is_grad_enabled():
            self._latest.evaluated = True

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Note that training has begun."""
        self._stepped = True

    def _begin(self, loader: object, begun: EpochFacts) -> None:
        if not isinstance(loader, DataLoader):
            return
        facts = self._known.get(loader)
        if facts is None:
            facts = self._known[loader] = self._series.join(loader, describe_loader(loader))
        if not facts.iterators:
            self.loaders.append(facts)
        self._ended(facts)
        self._steps[id(facts)] = [(known.facts, known.facts.steps) for known in self.loop.book]
        epoch = getattr(_chooser(loader), "epoch", None)
        begun.step = self.loop.index if self._stepped else -1
        begun.others = self._given - sum(known.given for known in facts.epochs)
        begun.epoch = epoch if isinstance(epoch, int) else None
        facts.place = user_place()
        facts.iterators += 1
        facts.epochs.append(begun)
        if isinstance(loader.dataset, IterableDataset) and loader.num_workers > 1:
            self._copies.follow(facts, begun)
        del facts.epochs[:-_KEPT_EPOCHS]
        self.news.append(facts)

    def _ended(self, facts: LoaderFacts) -> None:
        """Note which optimizers stepped since the last epoch of a loader began."""
        began = {id(known): steps for known, steps in self._steps.pop(id(facts), ())}
        if facts.epochs:
            facts.epochs[-1].trained = tuple(
                known.facts
                for known in self.loop.book
                if known.facts.steps > began.get(id(known.facts), 0)
            )

    def _ordered(self, iterator: object, index: object) -> None:
        epoch = self._running.get(iterator) or self._opening
        if epoch is not None and len(epoch.order) < _KEPT_BATCHES:
            epoch.order.append(hash(tuple(index) if isinstance(index, list) else index))
            if epoch.sorted and isinstance(index, list) and index and isinstance(index[0], int):
                last, self._last = self._last if len(epoch.order) > 1 else -1, index[-1]
                epoch.sorted = index == sorted(index) and last < index[0]


def describe_loader(loader: DataLoader[object]) -> LoaderFacts:
    """Return what a loader says of itself before the first iterator is made."""
    sampler = _chooser(loader)
    return LoaderFacts(
        sampler=type(sampler).__name__,
        has_set_epoch=hasattr(sampler, "set_epoch"),
        shuffles=_shuffles(sampler),
        may_shuffle=hasattr(sampler, "set_epoch") and not hasattr(sampler, "shuffle"),
        batches=_length(loader),
        samples=_length(sampler),
        workers=loader.num_workers,
        copied_generators=tuple(_copied_generators(loader)),
    )


def _chooser(loader: DataLoader[object]) -> object:
    """What decides about the order: the sampler, or a batch sampler that the program wrote."""
    batches = loader.batch_sampler
    return loader.sampler if batches is None or type(batches) is BatchSampler else batches


def _shuffles(sampler: object) -> bool:
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement
    return isinstance(sampler, Sampler) and getattr(sampler, "shuffle", None) is True


def _length(sized: object) -> int | None:
    try:
        return len(sized)  # type: ignore[arg-type]  # the exception is the answer
    except (TypeError, NotImplementedError):
        return None


def _copied_generators(loader: DataLoader[object]) -> Iterator[str]:
    if loader.num_workers >= 2 and loader.worker_init_fn is None:
        yield from generators_in(loader.dataset)
