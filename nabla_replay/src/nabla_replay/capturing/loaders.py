"""Where in its data a program is: epoch, batches taken, and the state from which an epoch follows.

Making the iterator of a ``DataLoader`` draws from the global generators, and so does its sampler.
What an epoch gives therefore follows from the generators as they were before that, not from those
at the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar, cast

import torch
from torch.utils.data import DataLoader

from nabla_guard.taps.patching import Patches, Replacement

from .generators import generator_state

__all__ = ["Iteration", "LoaderBook", "batch_size_of", "loader_state", "put_loader_state"]

ItemT = TypeVar("ItemT")

_PLACES = ("", "sampler", "batch_sampler", "batch_sampler.sampler", "dataset")


class Iteration:
    """One pass over a loader.

    Attributes:
        loader: what is iterated over.
        epoch: 0-based number of the pass.
        start: generators, loader and what else an epoch follows from, as they were before it.
        is_told_late: whether a step was taken in it before it was known to be one to follow.
        settled: batches handed out when a step was recorded last.
        touched: numbers of batches since then in which the model was called, where that is seen.
        used: batches handed out when a gradient was last computed; ``None`` if that was not seen.
    """

    def __init__(self, loader: object, epoch: int, between: Mapping[str, object]) -> None:
        self.loader = loader
        self.epoch = epoch
        self.start: dict[str, object] = {
            "generators": generator_state(),
            "loader": {},
            "between": between,
            "batch_size": batch_size_of(loader),
        }
        self.iterator: object = None
        self.taken = 0
        self.settled = 0
        self.is_told_late = False
        self.touched: set[int] = set()
        self.used: int | None = None

    @property
    def position(self) -> int:
        """Batches handed out so far."""
        return int(getattr(self.iterator, "_num_yielded", self.taken))

    def state(self) -> dict[str, object]:
        """Return what a checkpoint stores."""
        return {"epoch": self.epoch, "position": self.position, "start": self.start}


class LoaderBook:
    """Follows the passes over one loader: the one given, or the first that a step is taken in.

    Args:
        loader: the training data, where it is known.

    Attributes:
        on_epoch: called once for each pass over the followed loader.
        between: returns what a program changes between two epochs.
        carries: says whether gradients were computed since the last step; set where nobody calls
            :meth:`use`.
    """

    def __init__(self, loader: object = None) -> None:
        self._followed = loader
        self.on_epoch: Callable[[Iteration], object] = lambda iteration: None
        self.between: Callable[[], Mapping[str, object]] = dict
        self.carries: Callable[[], bool] | None = None
        self._started = False
        self._current: Iteration | None = None
        self._passes: dict[int, int] = {}
        self._first: dict[str, object] = {}
        self._changed: set[str] = set()
        self._others = 0
        self._patches = Patches()
        self._hush = False

    @property
    def current(self) -> Iteration | None:
        """The pass that a step of now belongs to."""
        return self._current

    def start(self) -> None:
        """See passes that the program makes by itself."""
        if self._started:
            return
        self._started = True
        self._patches.replace(DataLoader, "__iter__", self._wrap)

    def stop(self) -> None:
        """Let go of torch and of the data."""
        self._patches.restore()
        self._hush = True
        self._current = None

    def batches(self, loader: Iterable[ItemT]) -> Iterator[ItemT]:
        """Hand out the batches of a loader and count them."""
        self._followed = loader
        iteration = self._begin(loader)
        self._hush = True
        try:
            iterator = iter(loader)
        finally:
            self._hush = False
        for batch in iterator:
            iteration.taken += 1
            yield batch

    def use(self) -> None:
        """A gradient is computed from the batches taken so far, whether or not a step follows."""
        if self._current is not None:
            self._current.used = self._current.position

    def touch(self) -> None:
        """The model was called: the batch that was handed out last has a part in the step."""
        if self._current is not None:
            self._current.touched.add(self._current.position)

    @property
    def is_strange(self) -> bool:
        """Whether more happened since the last step than that the next batch was taken."""
        current = self._current
        return self._others > 0 or (current is not None and current.position > current.settled + 1)

    def settle_calls(self) -> tuple[int, tuple[int, ...]]:
        """A step was taken: return how many passes over other loaders began since the last one, and
        which batches had no part in it."""
        others, self._others = self._others, 0
        current = self._current
        if current is None:
            return others, ()
        touched, position = current.touched, current.position
        before, current.settled, current.touched = current.settled, position, set()
        if position not in touched:  # calls are not seen
            return others, ()
        return others, tuple(one for one in range(before + 1, position) if one not in touched)

    def settle(self) -> Iteration | None:
        """A step was taken: follow the loader that its batch came from, and return its pass."""
        if self._followed is None and self._current is not None:
            self._followed = self._current.loader
            self._current.is_told_late = True
            self.on_epoch(self._current)
        return self._current

    # ------------------------------------------------------------------ private
    def _begin(self, loader: object) -> Iteration:
        known = self._followed if self._followed is not None else loader
        number = self._passes.get(id(known), -1) + 1
        self._passes[id(known)] = number
        used = self._used()
        self._current = Iteration(loader, number, self.between())
        self._current.start["loader"] = {**loader_state(loader), **self._changes(loader)}
        if used is not None:
            self._current.start["before"] = used
        if self._followed is not None:
            self.on_epoch(self._current)
        return self._current

    def _changes(self, loader: object) -> dict[str, object]:
        """Return the settings of a loader that the program has changed since its first pass."""
        now = dict(_settings(loader))
        for name, value in now.items():
            if name in self._changed or self._first.setdefault(name, value) != value:
                self._changed.add(name)
        return {name: value for name, value in now.items() if name in self._changed}

    def _used(self) -> int | None:
        """How many batches of the pass that is over had a part in steps, as far as known."""
        last = self._current
        if last is None or self.carries is None:
            return None if last is None else last.used
        return last.position if self.carries() else None

    def _is_followed(self, loader: object) -> bool:
        """Whether a pass that begins now is that of a step; of several passes side by side (a zip
        of two loaders), the one that began first."""
        if self._followed is not None:
            return loader is self._followed or self._is_made_anew(loader)
        return self._current is None or self._current.position > 0

    def _is_made_anew(self, loader: object) -> bool:
        """Whether this is another loader over the same data: some programs make one per epoch.

        One that only evaluates on that data makes an epoch without steps, which harms nothing.
        """
        data = getattr(self._followed, "dataset", None)
        return data is not None and getattr(loader, "dataset", None) is data

    def _wrap(self, original: Replacement) -> Replacement:
        def begin(loader: DataLoader[object]) -> object:
            if self._hush or not self._is_followed(loader):
                self._others += not self._hush and self._followed is not None
                return original(loader)
            iteration = self._begin(loader)
            iteration.iterator = original(loader)
            return iteration.iterator

        return begin


def batch_size_of(loader: object) -> int | None:
    """Return how many samples a batch has, where the loader says so."""
    found = getattr(loader, "batch_size", None)
    return found if type(found) is int else None


def loader_state(loader: object) -> dict[str, object]:
    """Return what a loader, its samplers and its data set keep beside the global generators.

    Generators of their own, and the number of the epoch that a program sets by hand.
    """
    state: dict[str, object] = {}
    for place, owner in _owners(loader):
        generator, epoch = getattr(owner, "generator", None), getattr(owner, "epoch", None)
        if isinstance(generator, torch.Generator):
            state[f"{place}.generator".lstrip(".")] = generator.get_state()
        if type(epoch) is int:
            state[f"{place}.epoch".lstrip(".")] = epoch
    return state


def put_loader_state(loader: object, state: Mapping[str, object]) -> None:
    """Undo a loader to a state of :func:`loader_state`; what it lacks is left out."""
    for place, owner in _owners(loader):
        generator = getattr(owner, "generator", None)
        kept = state.get(f"{place}.generator".lstrip("."))
        if isinstance(generator, torch.Generator) and kept is not None:
            generator.set_state(cast("torch.Tensor", kept))
        epoch = state.get(f"{place}.epoch".lstrip("."))
        if type(epoch) is int and type(getattr(owner, "epoch", None)) is int:
            owner.epoch = epoch  # type: ignore[attr-defined]
        for key, kept in state.items():
            name = key.removeprefix(f"{place}.")
            known = getattr(owner, name, None) if place and name != key else None
            if known is not None and type(kept) is type(known) in _numbers_of(place, owner):
                setattr(owner, name, kept)


def _settings(loader: object) -> Iterator[tuple[str, object]]:
    for place, owner in _owners(loader):
        for name, value in _settings_of(place, owner):
            yield f"{place}.{name}", value


def _settings_of(place: str, owner: object) -> Iterator[tuple[str, object]]:
    """Yield numbers that a program may set to change its data: a share, a difficulty.

    The whole numbers of a data set may go with samples that it holds, and are left alone.
    """
    kinds = _numbers_of(place, owner)
    for name, value in tuple(getattr(owner, "__dict__", {}).items()):
        if type(value) in kinds and name != "epoch":
            yield name, value


def _numbers_of(place: str, owner: object) -> tuple[type, ...]:
    if not place or type(owner).__module__.startswith("torch."):
        return ()
    return (float,) if place == "dataset" else (float, int)


def _owners(loader: object) -> Iterator[tuple[str, object]]:
    for place in _PLACES:
        owner: object = loader
        for name in place.split(".") if place else ():
            owner = getattr(owner, name, None)
        if owner is not None:
            yield place, owner
