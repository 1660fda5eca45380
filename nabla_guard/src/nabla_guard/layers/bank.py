"""Slots for minima and maxima of one dtype on one device, filled without a transfer to the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Bank", "Held"]

_FIRST = 64
_MOST = 4096

Pair = tuple[Tensor, Tensor]


@dataclass(slots=True, eq=False)
class Held:
    """What a bank held at the end of a step.

    Attributes:
        owners: who filled each slot.
        values: minimum and maximum of each slot, one after the other.
    """

    owners: list[int]
    values: list[float]


class Bank:
    """Preallocated slots; each reduction of a step gets the next one.

    The buffer grows up to 4096 slots and then folds: what comes later is joined on the device with
    the last slot of the same owner.

    Attributes:
        slots: where a minimum and a maximum go.
        owners: who filled each slot of this step; the next one is that of their number.

    Args:
        dtype: of the values.
        device: of the values.
    """

    __slots__ = (
        "_buffer",
        "_first",
        "_flat",
        "_folded",
        "_host",
        "_marked",
        "_shared",
        "device",
        "dtype",
        "owners",
        "slots",
    )

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self.device = device
        self.owners: list[int] = []
        self._shared: list[tuple[int, int]] = []
        self._buffer = torch.empty((0, 2), dtype=dtype, device="meta")
        self._flat = self._buffer.view(-1)
        self.slots: list[Pair] = []
        self._folded: dict[int, int] = {}
        self._host: Tensor | None = None
        self._first = 0
        self._marked = 0

    def reduce(self, tensor: Tensor, owner: int) -> None:
        """Note the range of ``tensor`` for ``owner``. Gradients must be off.

        Args:
            tensor: not empty, strided, of the bank's dtype and device.
            owner: any number.
        """
        used = len(self.owners)
        if used < len(self.slots):
            torch.aminmax(tensor, out=self.slots[used])
            self.owners.append(owner)
        elif used < _MOST:
            self._allocate(2 * used or _FIRST)
            self.reduce(tensor, owner)
        else:
            self._fold(tensor, owner)

    def share(self, owner: int) -> None:
        """Note for ``owner`` too what was noted last: it is the same tensor."""
        self._shared.append((len(self.owners) - 1, owner))

    def mark(self) -> None:
        """A backward pass is over: what was noted so far belongs to it."""
        self._marked = len(self.owners)

    def drop_marked(self) -> None:
        """What belongs to finished backward passes was discarded by the program."""
        self._first, self._marked = max(self._first, self._marked), 0
        if self._first == len(self.owners):
            self.clear()

    def clear(self) -> None:
        """Begin a new step."""
        self.owners.clear()
        self._shared.clear()
        self._folded.clear()
        self._first = self._marked = 0

    def send(self) -> None:
        """Start the copy to the host; the read that every step makes anyway waits for it."""
        used, buffer = len(self.owners), self._buffer
        if used and self.device.type == "cuda":
            if self._host is None or self._host.shape != buffer.shape:
                self._host = torch.empty(buffer.shape, dtype=self.dtype, pin_memory=True)
            self._host[:used].copy_(buffer[:used], non_blocking=True)

    def receive(self) -> Held | None:
        """Return what was noted and begin a new step; ``None`` when nothing was."""
        used, first = len(self.owners), self._first
        if used == first:
            self.clear()
            return None
        flat = self._flat
        if self._host is not None:
            torch.cuda.current_stream(self.device).synchronize()  # done already by the step's read
            flat = self._host.view(-1)
        owners = self.owners[first:]
        values: list[float] = flat[2 * first : 2 * used].tolist()
        for slot, owner in self._shared:
            if slot >= first:
                owners.append(owner)
                values += values[2 * (slot - first) : 2 * (slot - first) + 2]
        self.clear()
        return Held(owners, values)

    def _allocate(self, count: int) -> None:
        with torch.inference_mode(False), torch.no_grad():
            buffer = torch.empty((count, 2), dtype=self.dtype, device=self.device)
            if self.slots:
                buffer[: len(self.slots)].copy_(self._buffer)
            self._buffer, self._flat = buffer, buffer.view(-1)
            lows, highs = buffer.unbind(1)
            self.slots = list(zip(lows.unbind(), highs.unbind(), strict=True))

    def _fold(self, tensor: Tensor, owner: int) -> None:
        if not self._folded:
            self._folded = {known: slot for slot, known in enumerate(self.owners)}
        slot = self._folded.get(owner)
        if slot is not None:
            low, high = torch.aminmax(tensor)
            torch.minimum(low, self.slots[slot][0], out=self.slots[slot][0])
            torch.maximum(high, self.slots[slot][1], out=self.slots[slot][1])
