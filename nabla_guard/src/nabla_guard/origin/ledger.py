"""Which tensors of a re-execution are bad, and from which births they descend."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from ..taps.place import Line
from .findings import Source
from .references import version_of
from .states import FINITE, state_of

__all__ = ["Ledger", "Origin"]

_NONE: frozenset[int] = frozenset()


class Origin(NamedTuple):
    """A tensor that was there before the step.

    Attributes:
        source: what it is.
        name: dotted name, or the argument.
        model: class name of the root module it belongs to.
        tensor: the tensor itself, of which an op may have seen a view only.
        line: where the user's code last wrote to it.
    """

    source: Source
    name: str
    model: str = ""
    tensor: Tensor | None = None
    line: Line | None = None


class _Known(NamedTuple):
    ref: weakref.ref[Tensor]
    version: int
    writes: int
    state: int
    births: frozenset[int]


class Ledger:
    """State and descent of every tensor that an op has seen."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._storages: dict[int, frozenset[int]] = {}
        self._origins: dict[int, Origin] = {}
        self._fed: dict[int, frozenset[int]] = {}
        self._writes: dict[int, int] = {}

    def declare(self, tensor: Tensor, origin: Origin) -> None:
        """Say what a tensor is that was there before; views of it count as itself."""
        key = _storage(tensor)
        if key is not None and key not in self._origins:
            source, name, model, _, line = origin
            self._origins[key] = Origin(source, name, model, tensor, line)

    def origin(self, tensor: Tensor) -> Origin:
        """Return what a tensor is that no op of the re-execution has made."""
        key = _storage(tensor)
        return self._origins.get(key or 0, Origin("outside", "a tensor"))

    def state(self, tensor: Tensor) -> int:
        """Return how bad a tensor is, measured unless it is known and unchanged."""
        known = self._known.get(id(tensor))
        if known is not None and known.ref() is tensor and self._is_current(known, tensor):
            return known.state
        dtype = tensor.dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            return FINITE
        state = state_of(tensor)
        self._known[id(tensor)] = self._entry(tensor, state, _NONE)
        return state

    def forget(self, written: Iterable[Tensor]) -> None:
        """Measure these again: an op wrote to them, and counts that only after it has returned.

        So is whatever shares their memory: a write through ``.data`` changes no other version.
        """
        for tensor in written:
            self._known.pop(id(tensor), None)
            key = _storage(tensor)
            if key is not None:
                self._writes[key] = self._writes.get(key, 0) + 1

    def births(self, tensor: Tensor) -> frozenset[int] | None:
        """Return the births that a bad tensor descends from; ``None`` when it is not known."""
        known = self._known.get(id(tensor))
        if known is not None and known.ref() is tensor and known.births:
            return known.births
        return self._storages.get(_storage(tensor) or 0)

    @property
    def is_fed(self) -> bool:
        """Whether a tensor depends on an overflow that was swallowed."""
        return bool(self._fed)

    def fed_by(self, tensors: Iterable[Tensor]) -> frozenset[int]:
        """Return the overflows that were swallowed on the way to these finite tensors."""
        if not self._fed:
            return _NONE
        return _NONE.union(*(self._fed.get(_storage(tensor) or 0, _NONE) for tensor in tensors))

    def feed(self, tensors: Iterable[Tensor], births: frozenset[int]) -> None:
        """Note that tensors depend on overflows that were swallowed; on none if it is empty."""
        if not births and not self._fed:
            return
        for tensor in tensors:
            key = _storage(tensor) or 0
            if births:
                self._fed[key] = births
            else:
                self._fed.pop(key, None)

    def put(self, tensor: Tensor, state: int, births: frozenset[int]) -> None:
        """Note state and descent of a tensor."""
        self._known[id(tensor)] = self._entry(tensor, state, births)
        if births and (key := _storage(tensor)) is not None:
            self._storages[key] = births

    def _entry(self, tensor: Tensor, state: int, births: frozenset[int]) -> _Known:
        writes = self._writes.get(_storage(tensor) or 0, 0) if self._writes else 0
        return _Known(weakref.ref(tensor), version_of(tensor), writes, state, births)

    def _is_current(self, known: _Known, tensor: Tensor) -> bool:
        if known.version != version_of(tensor):
            return False
        return not self._writes or known.writes == self._writes.get(_storage(tensor) or 0, 0)


def _storage(tensor: Tensor) -> int | None:
    """Identity of the memory of a strided tensor."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return None  # sparse and wrapper tensors have no storage of their own
