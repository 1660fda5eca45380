"""Holds a state as it is now, in memory of its own; its stored form is made when it is written.

Naming every tensor and spelling out every value costs more than copying a small state does, and a
program is blocked for as long as this takes. So the training thread only walks through the
containers and copies all tensors at once; the thread that writes does the rest. Whatever is
unusual is brought into its stored form at once: what cannot be stored is refused there and then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from .encoded import MAX_DEPTH, EncodedState
from .encoding import encode, snapshot

__all__ = ["FrozenState", "freeze"]

_ATOMS = frozenset(
    (type(None), bool, str, int, float, complex, bytes, torch.Size, torch.dtype, torch.device)
)
_KEYS = frozenset((type(None), bool, str, int, float))
_DTYPES = frozenset(
    (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
)
_strided = torch.strided
_TENSORS = frozenset((Tensor, Parameter))
_kind_of = attrgetter("is_cpu", "dtype", "layout", "shape")

_Met = tuple[list[int], list[object], list[tuple[int, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenState:
    """A state that nobody changes any more.

    Attributes:
        tree: the containers, with copies in them.
        tensors: those copies, in the order in which they were met; their memory can be used again.
        stored: the stored form, where it was made at once.
        met: what the tensors were that were copied, tied ones each time: which of them lay at one
            place, and their kind. Of a next state with the same, nothing else has to be asked.
        places: the copy of each of them.
        firsts: which of them are the first of those that are tied.
    """

    tree: object = None
    tensors: list[Tensor] = field(default_factory=list)
    stored: EncodedState | None = None
    met: _Met = ([], [], [])
    places: list[Tensor] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        if self.stored is not None:
            return self.stored.size_bytes
        return sum(tensor.nbytes for tensor in self.tensors)

    def encoded(self) -> EncodedState:
        """Return the stored form."""
        return encode(self.tree) if self.stored is None else self.stored


def freeze(state: object, spare: FrozenState | None = None) -> FrozenState:
    """Return a state as it is now.

    Args:
        state: what to copy.
        spare: an earlier one that nobody needs any more; its memory is used again, which costs a
            fifth of what fresh memory does for a small model.

    Raises:
        UnsupportedStateError: something in it has no safe form.
    """
    memory = FrozenState() if spare is None else spare
    walk = _Walk(memory.places)
    try:
        tree = walk.value(state, 0)
        met = _met(walk.live)
        if met != memory.met:
            memory = _memory(walk.live, met, memory.tensors)
            walk = _Walk(memory.places)
            tree = walk.value(state, 0)
    except _UnusualError:
        return FrozenState(stored=snapshot(state, None if spare is None else spare.stored))
    live = walk.live
    if len(memory.firsts) < len(live):
        live = [live[first] for first in memory.firsts]
    if live:
        with torch.no_grad():
            torch._foreach_copy_(memory.tensors, live)
    return FrozenState(
        tree=tree,
        tensors=memory.tensors,
        met=memory.met,
        places=memory.places,
        firsts=memory.firsts,
    )


class _UnusualError(Exception):
    """There is something that is better looked at in full."""


class _Walk:
    """Copies containers, puts the memory that tensors go to into them, and lists those tensors.

    Args:
        places: that memory, in the order in which the tensors are met; where there is too little,
            the copy is of no use.
    """

    def __init__(self, places: Sequence[Tensor]) -> None:
        self.live: list[Tensor] = []
        self._places = places

    def value(self, value: object, depth: int) -> object:
        kind = type(value)
        if kind in _ATOMS:
            return value
        if kind in _TENSORS:
            return self._taken((value,))[0]  # type: ignore[arg-type]
        if depth >= MAX_DEPTH:
            raise _UnusualError
        if kind is dict:
            return self._mapping(value, {}, depth + 1)  # type: ignore[arg-type]
        if kind is list or kind is tuple:
            return kind(self._sequence(value, depth + 1))  # type: ignore[arg-type]
        if kind is OrderedDict:
            return self._ordered(value, depth + 1)  # type: ignore[arg-type]
        if isinstance(value, np.ndarray) and kind is np.ndarray and value.dtype.kind in "biuf":
            return value.copy()
        raise _UnusualError

    def _mapping(
        self, value: Mapping[object, object], copy: dict[object, object], depth: int
    ) -> dict[object, object]:
        if not _KEYS.issuperset(map(type, value)):
            raise _UnusualError
        items = value.values()
        kinds = set(map(type, items))
        if kinds <= _ATOMS:  # most are of one kind: nothing is asked of each
            copy.update(value)
        elif kinds <= _TENSORS:
            copy.update(zip(value, self._taken(items), strict=True))  # type: ignore[arg-type]
        else:
            for key, item in value.items():
                copy[key] = item if type(item) in _ATOMS else self.value(item, depth)
        return copy

    def _sequence(self, value: Sequence[object], depth: int) -> Sequence[object]:
        if _ATOMS.issuperset(map(type, value)):
            return value
        return [self.value(item, depth) for item in value]

    def _ordered(self, value: OrderedDict[object, object], depth: int) -> object:
        copy: OrderedDict[object, object] = OrderedDict()
        self._mapping(value, copy, depth)
        # torch keeps the versions of modules there, and load_state_dict reads them; state_dict()
        # makes them anew each time, and nobody changes them
        versions = getattr(value, "_metadata", None)
        if versions is not None:
            copy._metadata = versions  # type: ignore[attr-defined]
        return copy

    def _taken(self, tensors: Collection[Tensor]) -> Sequence[Tensor]:
        """Return the memory that these tensors go to."""
        begin = len(self.live)
        self.live += tensors
        places = self._places[begin : len(self.live)]
        return places if len(places) == len(tensors) else (*tensors,)


def _met(live: Sequence[Tensor]) -> _Met:
    """Return what decides which memory tensors go to, and whether they can be copied at once.

    Of addresses that is which ones are the same: a state of generators is a new tensor every time.
    """
    seen: dict[int, int] = {}
    try:
        first = [*map(seen.setdefault, map(Tensor.data_ptr, live), range(len(live)))]
        return first, [*map(_kind_of, live)], [*map(Tensor.stride, live)]
    except (RuntimeError, NotImplementedError) as error:  # they lie nowhere, or in pieces
        raise _UnusualError from error


def _memory(live: Sequence[Tensor], met: _Met, spare: Sequence[Tensor]) -> FrozenState:
    """Return the memory that tensors go to, the same for all that are the same memory."""
    tensors: list[Tensor] = []
    places: list[Tensor] = []
    firsts: list[int] = []
    known: dict[object, Tensor] = {}
    for index, (tensor, *facts) in enumerate(zip(live, *met, strict=True)):
        if not _is_usual(tensor):
            raise _UnusualError
        tied = tuple(facts) if tensor.data_ptr() else index
        if tied not in known:
            known[tied] = _piece(tensor, spare, len(tensors))
            tensors.append(known[tied])
            firsts.append(index)
        places.append(known[tied])
    return FrozenState(tensors=tensors, met=met, places=places, firsts=firsts)


def _is_usual(tensor: Tensor) -> bool:
    return (
        tensor.is_cpu
        and tensor.dtype in _DTYPES
        and tensor.layout is _strided
        and not tensor.is_neg()
    )


def _piece(tensor: Tensor, spare: Sequence[Tensor], index: int) -> Tensor:
    if index < len(spare):
        known = spare[index]
        if known.dtype == tensor.dtype and known.shape == tensor.shape:
            return known
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
