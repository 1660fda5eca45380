"""Holds a state as it is now, in memory of its own; its stored form is made when it is written.

Naming every tensor and spelling out every value costs more than copying a small state does, and a
program is blocked for as long as this takes. So the training thread only walks through the
containers and copies all tensors at once; the thread that writes does the rest. Whatever is
unusual is brought into its stored form at once: what cannot be stored is refused there and then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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

_Known = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenState:
    """A state that nobody changes any more.

    Attributes:
        tree: the containers, with copies in them.
        tensors: those copies, in the order in which they were met; their memory can be used again.
        stored: the stored form, where it was made at once.
    """

    tree: object = None
    tensors: list[Tensor] = field(default_factory=list)
    stored: EncodedState | None = None

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
    walk = _Walk([] if spare is None else spare.tensors)
    try:
        tree = walk.value(state, 0)
    except _UnusualError:
        return FrozenState(stored=snapshot(state, None if spare is None else spare.stored))
    if walk.live:
        with torch.no_grad():
            torch._foreach_copy_(walk.kept, walk.live)
    return FrozenState(tree=tree, tensors=walk.kept)


class _UnusualError(Exception):
    """There is something that is better looked at in full."""


class _Walk:
    """Copies containers, and lists the tensors in them beside the memory that they go to."""

    def __init__(self, spare: list[Tensor]) -> None:
        self.live: list[Tensor] = []
        self.kept: list[Tensor] = []
        self._spare = spare
        self._known: dict[int, _Known] = {}

    def value(self, value: object, depth: int) -> object:
        kind = type(value)
        if kind in _ATOMS:
            return value
        if kind is Tensor or kind is Parameter:
            return self._tensor(value)  # type: ignore[arg-type]
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
        for key, item in value.items():
            if type(key) not in _KEYS:
                raise _UnusualError
            kind = type(item)
            if kind in _ATOMS:  # most are of these: a call less for each
                copy[key] = item
            elif kind is Tensor or kind is Parameter:
                copy[key] = self._tensor(item)  # type: ignore[arg-type]
            else:
                copy[key] = self.value(item, depth)
        return copy

    def _sequence(self, value: Sequence[object], depth: int) -> list[object]:
        return [item if type(item) in _ATOMS else self.value(item, depth) for item in value]

    def _ordered(self, value: OrderedDict[object, object], depth: int) -> object:
        copy: OrderedDict[object, object] = OrderedDict()
        self._mapping(value, copy, depth)
        # torch keeps the versions of modules there, and load_state_dict reads them
        versions = getattr(value, "_metadata", None)
        if versions is not None:
            copy._metadata = self.value(versions, depth)  # type: ignore[attr-defined]
        return copy

    def _tensor(self, tensor: Tensor) -> Tensor:
        """Return the memory that a tensor goes to, the same for all that are the same memory."""
        if (
            not tensor.is_cpu
            or tensor.dtype not in _DTYPES
            or tensor.layout is not _strided
            or tensor.is_neg()
        ):
            raise _UnusualError
        address = tensor.data_ptr()
        for live, kept in self._known.get(address, ()) if address else ():
            if (
                live.dtype == tensor.dtype
                and live.shape == tensor.shape
                and live.stride() == tensor.stride()
            ):
                return kept
        kept = self._memory(tensor)
        if address:
            self._known.setdefault(address, []).append((tensor, kept))
        self.live.append(tensor)
        self.kept.append(kept)
        return kept

    def _memory(self, tensor: Tensor) -> Tensor:
        at = len(self.kept)
        if at < len(self._spare):
            spare = self._spare[at]
            if spare.dtype == tensor.dtype and spare.shape == tensor.shape:
                return spare
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
