"""Loaders whose first pass is kept by ``itertools.cycle`` and given again for ever."""

from __future__ import annotations

import gc
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.utils.data import RandomSampler, Sampler
from torch.utils.data.dataloader import _BaseDataLoaderIter

from nabla_guard.facts import Place
from nabla_guard.loop.watch import Watch
from nabla_guard.taps.patching import Patches, Replacement
from nabla_guard.taps.place import user_place

if TYPE_CHECKING:
    from nabla_guard.loop.live import LiveLoop

__all__ = ["Replay", "ReplayWatch"]

_MAX_LOOKS = 8  # each of them walks all objects


@dataclass(slots=True, kw_only=True, eq=False)
class Replay:
    """A loader that shuffles, whose batches were kept at its end and are given again.

    Attributes:
        sampler: class name of its sampler.
        batches: how many batches were kept.
        place: the line that took the batch behind the last one.
        step: the step of the loop that came then.
    """

    sampler: str
    batches: int
    place: Place | None
    step: int


class ReplayWatch(Watch):
    """Asks, whenever a pass over a loader that shuffles is over, who took it.

    Attributes:
        found: passes that ``itertools.cycle`` took, until a detector takes them away.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.found: list[Replay] = []
        self._looks = 0

    def start(self, patches: Patches) -> None:
        """Follow the ends of passes."""
        patches.replace(_BaseDataLoaderIter, "__next__", self._wrap_next)

    def steps_since(self, replay: Replay) -> int:
        """Steps of the loop since the kept batches began to be given again."""
        return self.loop.coming - replay.step

    def _wrap_next(self, original: Replacement) -> Replacement:
        def following(iterator: _BaseDataLoaderIter) -> object:
            try:
                return original(iterator)
            except StopIteration:
                self.guarded(lambda: self._over(iterator))
                raise

        return following

    def _over(self, iterator: _BaseDataLoaderIter) -> None:
        sampler = getattr(iterator._index_sampler, "sampler", None)
        if self._looks >= _MAX_LOOKS or not _shuffles(sampler):
            return
        self._looks += 1
        if any(type(owner) is itertools.cycle for owner in gc.get_referrers(iterator)):
            replay = Replay(
                sampler=type(sampler).__name__,
                batches=len(iterator),
                place=user_place(),
                step=self.loop.coming,
            )
            self.found.append(replay)


def _shuffles(sampler: object) -> bool:
    drawn = isinstance(sampler, RandomSampler)
    return drawn or (isinstance(sampler, Sampler) and getattr(sampler, "shuffle", None) is True)
