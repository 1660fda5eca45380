"""Iterable datasets of which every worker delivers all of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..loop.exact import tensors_in
from .backwards import fingerprint

if TYPE_CHECKING:
    from .loader_facts import EpochFacts, LoaderFacts

__all__ = ["WorkerCopies"]

_ROUNDS = 3


class WorkerCopies:
    """Compares, in the first rounds over the workers of a loader, what each of them delivered.

    Attributes:
        watches: whether there is anything to compare.
    """

    def __init__(self) -> None:
        self.watches = False
        self._open: dict[int, tuple[EpochFacts, LoaderFacts, list[int]]] = {}

    def follow(self, facts: LoaderFacts, epoch: EpochFacts) -> None:
        """Compare the batches of an epoch that begins; once for each loader."""
        if facts.iterators > 1:
            return
        self._open[id(epoch)] = (epoch, facts, [])
        self.watches = True

    def given(self, epoch: EpochFacts, batch: object) -> None:
        """Note one batch; the loader takes the workers in turn."""
        known = self._open.get(id(epoch))
        if known is None:
            return
        _, facts, prints = known
        prints.append(hash(tuple(fingerprint(tensor) for _, tensor in tensors_in(batch))))
        if len(prints) == _ROUNDS * facts.workers:
            facts.copied_batches = _rounds_of_copies(prints, facts.workers)
            del self._open[id(epoch)]
            self.watches = bool(self._open)


def _rounds_of_copies(prints: list[int], workers: int) -> int:
    """How many rounds gave one batch over and over, if no two rounds gave the same."""
    rounds = [prints[start : start + workers] for start in range(0, len(prints), workers)]
    same = [found[0] for found in rounds if len(set(found)) == 1]
    return len(same) if len(set(same)) == len(rounds) else 0
