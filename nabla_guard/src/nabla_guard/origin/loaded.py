"""Batches that a loader made by more calls than are noted: made once more only if they are bad.

Of such a batch the indices and the random states are kept, and not a tensor. Where its values turn
out not to be finite, the data set is asked for the same samples again, op by op.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from ..taps.place import Line, user_line
from .ambient import AllGenerators
from .nested import leaves
from .references import version_of

if TYPE_CHECKING:
    import numpy

__all__ = ["Deliveries", "Draw", "Loaded", "replaced_by"]

_MAX_ITEMS = 4096
_MAX_BATCHES = 4


class Draw:
    """What a loader is about to fetch, and from which random states.

    Attributes:
        index: what the sampler gave.
        generators: the random states.
    """

    __slots__ = ("generators", "index")

    def __init__(self, index: object) -> None:
        self.index = index
        self.generators = AllGenerators()


class Loaded:
    """A batch that was delivered.

    Attributes:
        place: where the user's code asked for it.

    Args:
        draw: what was fetched.
        iterator: the iterator of the loader.
        batch: what it gave.
    """

    __slots__ = ("_draw", "_iterator", "_tensors", "place")

    def __init__(self, draw: Draw, iterator: object, batch: object) -> None:
        self.place: Line | None = user_line()
        self._draw = draw
        self._iterator = weakref.ref(iterator)
        self._tensors = [(weakref.ref(tensor), version_of(tensor)) for tensor in leaves(batch)]

    @property
    def functions(self) -> list[object]:
        """The user's own functions that make a sample and a batch."""
        fetcher = self._fetcher()
        return [] if fetcher is None else [fetcher.dataset.__getitem__, fetcher.collate_fn]

    def tensors(self) -> list[Tensor]:
        """Return the tensors of the batch; none once one is gone or was changed."""
        found = [(reference(), version) for reference, version in self._tensors]
        same = [t for t, version in found if t is not None and version_of(t) == version]
        return same if len(same) == len(found) else []

    def again(self) -> list[Tensor]:
        """Fetch the same samples again; empty where the loader cannot."""
        fetcher = self._fetcher()
        if fetcher is None:
            return []
        self._draw.generators.restore()
        with _arrays_locked(fetcher.dataset):
            return list(leaves(fetcher.fetch(self._draw.index)))  # type: ignore[no-untyped-call]

    def _fetcher(self) -> _MapDatasetFetcher | None:
        found = getattr(self._iterator(), "_dataset_fetcher", None)
        return found if isinstance(found, _MapDatasetFetcher) else None


class Deliveries:
    """The latest batches of a thread; the training does not notice where they cannot be noted."""

    __slots__ = ("_batches", "_draw")

    def __init__(self) -> None:
        self._draw: Draw | None = None
        self._batches: deque[Loaded] = deque(maxlen=_MAX_BATCHES)

    def __iter__(self) -> Iterator[Loaded]:
        return iter(self._batches)

    def fetching(self, index: object) -> None:
        """A loader is about to fetch samples in this thread."""
        try:
            self._draw = Draw(index)
        except Exception:
            self._draw = None

    def delivered(self, iterator: object, batch: object) -> None:
        """A loader has made a batch of them."""
        draw, self._draw = self._draw, None
        try:
            if draw is not None:
                self._batches.append(Loaded(draw, iterator, batch))
        except Exception:
            self._batches.clear()


def replaced_by(batch: Sequence[Tensor], again: Sequence[Tensor]) -> Mapping[int, Tensor]:
    """Return what stands for each tensor of a batch, by identity.

    Returns:
        Nothing where the two are not bad at the same places: the samples were drawn otherwise.
    """
    if len(batch) != len(again) or not all(map(_is_like, batch, again)):
        return {}
    return {id(old): new for old, new in zip(batch, again, strict=True)}


def _is_like(old: Tensor, new: Tensor) -> bool:
    if old.shape != new.shape or old.dtype is not new.dtype or old.layout is not torch.strided:
        return False
    return torch.equal(old.isfinite(), new.isfinite())


@contextmanager
def _arrays_locked(dataset: object) -> Iterator[None]:
    """Let nobody write to the arrays of a data set: what writes to them fails instead."""
    locked = [array for array in _arrays_of(dataset) if array.flags.writeable]
    try:
        for array in locked:
            array.flags.writeable = False
        yield
    finally:
        for array in locked:
            array.flags.writeable = True


def _arrays_of(dataset: object) -> Iterator[numpy.ndarray]:
    known = sys.modules.get("numpy")
    if known is None or not hasattr(dataset, "__dict__"):
        return
    for held in vars(dataset).values():
        inside: Iterable[object] = held.values() if isinstance(held, dict) else (held,)
        if isinstance(held, (list, tuple)):
            inside = held[:_MAX_ITEMS]
        yield from (value for value in inside if isinstance(value, known.ndarray))
