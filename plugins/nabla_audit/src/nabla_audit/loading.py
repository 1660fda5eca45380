"""AUD501 to 503: what data loaders deliver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_guard.facts import LoopFacts
from nabla_guard.families.loader_facts import EpochFacts, LoaderFacts
from nabla_guard.families.loaders import LoaderWatch

from .places import at, where
from .rules.data import EPOCH_ORDER_REPEATS, SAME_BATCH_EVERY_STEP, WORKER_RNG_COPIES
from .watches.replays import Replay, ReplayWatch

__all__ = ["LoaderDetector"]

_SAME_BATCHES = 5
_MIN_BATCHES = 3
_SAMPLES_FOR_TWO = 12  # 12! orders: equal by chance once in 479 million epochs


class LoaderDetector:
    """Judges a loader whenever a new iterator over it was made, and at the end."""

    rules = (SAME_BATCH_EVERY_STEP, EPOCH_ORDER_REPEATS, WORKER_RNG_COPIES)
    patient = True  # what is new about a loader waits for the next step that is looked at

    def __init__(self, facts: LoopFacts) -> None:
        self._watch = facts.gather(LoaderWatch)
        self._replays = facts.gather(ReplayWatch)
        self._step: int | None = None

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge loaders of which an iterator was made since the last step."""
        self._step = record.step
        news = self._watch.news
        if not news and not self._replays.found:
            return ()
        found = [issue for loader in news for issue in judge_loader(loader, record.step)]
        news.clear()
        return [*found, *self._replayed()]

    def finish(self) -> Iterable[Issue]:
        """Judge the last epoch, which is complete now."""
        for loader in self._watch.loaders:
            yield from judge_loader(loader, self._step, complete=True)
        yield from self._replayed()

    def _replayed(self) -> Iterator[Issue]:
        """Passes that were kept and are given again, from the third step on that uses them."""
        for replay in tuple(self._replays.found):
            steps = self._replays.steps_since(replay)
            if steps >= _MIN_BATCHES:
                self._replays.found.remove(replay)
                if replay.batches >= _MIN_BATCHES:
                    yield _cycled(replay, steps, self._step)


def judge_loader(
    loader: LoaderFacts, step: int | None, *, complete: bool = False
) -> Iterator[Issue]:
    """Yield the faults of one loader.

    Args:
        loader: its facts.
        step: step of the loop.
        complete: whether the last epoch is over.
    """
    done = loader.epochs if complete else loader.epochs[:-1]
    if loader.copied_generators:
        yield _copies(loader, step)
    shuffled = loader.may_shuffle and done and done[-1].epoch is not None and not done[-1].sorted
    if (loader.shuffles or shuffled) and _repeats(loader, done):
        yield _order(loader, done[-1], step)
    if loader.copied_batches:
        yield _copied(loader, step)
    if (loader.batches or 0) > 1 and _same_batch(done):
        yield _same(loader, step)


def _repeats(loader: LoaderFacts, done: list[EpochFacts]) -> bool:
    needed = 2 if (loader.samples or 0) >= _SAMPLES_FOR_TWO else 3
    last = done[-needed:]
    if len(last) < needed or len(last[-1].order) < _MIN_BATCHES:
        return False
    if all(epoch.evaluated for epoch in last) or not _train_one(last):
        return False
    first = last[0]
    return all(epoch.order == first.order and epoch.epoch == first.epoch for epoch in last)


def _train_one(epochs: list[EpochFacts]) -> bool:
    """Whether one optimizer went through all of these epochs: two experiments may share an order.

    Where no optimizer stepped, or that is not known, nothing speaks against it.
    """
    known = [epoch.trained for epoch in epochs]
    if None in known or not any(known):
        return True
    common = set.intersection(*({id(facts) for facts in trained or ()} for trained in known))
    return bool(common)


def _same_batch(done: list[EpochFacts]) -> bool:
    last = done[-_SAME_BATCHES:]
    if len(last) < _SAME_BATCHES or not last[0].order:
        return False
    alone = all(epoch.given == 1 and epoch.order[0] == last[0].order[0] for epoch in last)
    stepped = all(later.step > earlier.step for earlier, later in zip(last, last[1:], strict=False))
    return alone and stepped and last[0].others == last[-1].others


def _same(loader: LoaderFacts, step: int | None) -> Issue:
    return SAME_BATCH_EVERY_STEP.issue(
        f"{loader.iterators} iterators were made over a loader of {loader.batches} batches; each "
        f"of the last {_SAME_BATCHES} gave one batch, always the same first one.",
        step=step,
        where=where(loader.place, loader.sampler),
        phase="data",
        same_batches=Quantity(value=_SAME_BATCHES, unit="iterators", limit=_SAME_BATCHES),
        batches=loader.batches or 0,
    )


def _copied(loader: LoaderFacts, step: int | None) -> Issue:
    return SAME_BATCH_EVERY_STEP.issue(
        f"In each of the first {loader.copied_batches} rounds all {loader.workers} workers of the "
        "loader delivered the same bits (limit 0 rounds): the IterableDataset is not divided among "
        f"them, so every batch is used {loader.workers} times in a row.",
        step=step,
        where=where(loader.place, loader.sampler),
        phase="data",
        same_rounds=Quantity(value=loader.copied_batches, unit="rounds", limit=0),
        workers=loader.workers,
    )


def _order(loader: LoaderFacts, epoch: EpochFacts, step: int | None) -> Issue:
    hint, kind = "", "shuffling " if loader.shuffles else ""
    if loader.has_set_epoch:
        hint = f"; the sampler's epoch stayed {epoch.epoch}: set_epoch was not called"
    return EPOCH_ORDER_REPEATS.issue(
        f"Two epochs of a {kind}{loader.sampler} gave the same {len(epoch.order)} batches of "
        f"{loader.samples} samples in the same order{hint}.",
        step=step,
        where=where(loader.place, loader.sampler),
        phase="data",
        severity=Severity.HIGH if loader.shuffles else Severity.MEDIUM,
        batches=Quantity(value=len(epoch.order), unit="batches", limit=_MIN_BATCHES),
        sampler=loader.sampler,
    )


def _cycled(replay: Replay, steps: int, step: int | None) -> Issue:
    return EPOCH_ORDER_REPEATS.issue(
        f"itertools.cycle{at(replay.place)} kept the {replay.batches} batches of one pass over a "
        f"loader that shuffles ({replay.sampler}) and gives them in the same order for ever, "
        f"{steps} steps so far (limit {_MIN_BATCHES}): the loader is not asked again.",
        step=step,
        where=where(replay.place, "itertools.cycle"),
        phase="data",
        severity=Severity.MEDIUM,  # without augmentation some mean it so
        batches=Quantity(value=replay.batches, unit="batches", limit=_MIN_BATCHES),
        sampler=replay.sampler,
    )


def _copies(loader: LoaderFacts, step: int | None) -> Issue:
    named = ", ".join(loader.copied_generators)
    return WORKER_RNG_COPIES.issue(
        f"The dataset holds a random generator ({named}) and the loader has no worker_init_fn: "
        f"each of {loader.workers} workers (limit 1) draws the same numbers from its own copy.",
        step=step,
        where=where(loader.place, loader.sampler),
        phase="data",
        workers=Quantity(value=loader.workers, unit="workers", limit=1),
        generators=named,
    )
