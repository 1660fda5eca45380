"""How large the inputs of the root modules are, in one of every few steps."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from nabla_guard.loop.exact import tensors_in
from nabla_guard.loop.signals import can_read, is_ordinary
from nabla_guard.loop.watch import EVERY_EVENT, Watch

if TYPE_CHECKING:
    from nabla_guard.loop.live import LiveLoop
    from nabla_guard.loop.roots import RootRecord

__all__ = ["InputSizes"]

_EVERY_STEPS = 8
_KEPT = 64
_MOST_ROOTS = 4


class InputSizes(Watch):
    """Reduces the first floating-point input of each root module to its root mean square.

    The values stay on their device until somebody asks for them.

    Args:
        loop: the loop that is watched.
    """

    patient = EVERY_EVENT

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self._names: dict[int, str] = {}
        self._sizes: dict[int, deque[tuple[int, Tensor]]] = {}

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """See :class:`~nabla_guard.loop.watch.Watch`."""
        if not torch.is_grad_enabled() or not self._is_due(id(root)):
            return
        for _, tensor in tensors_in((args, kwargs)):
            if tensor.is_floating_point() and is_ordinary(tensor) and tensor.numel():
                if can_read(tensor):
                    self._note(root, tensor)
                return

    def histories(self) -> list[tuple[str, list[tuple[int, float]]]]:
        """Return steps and root mean squares, with the class of each root module."""
        return [
            (self._names[key], [(step, float(size)) for step, size in sizes])
            for key, sizes in self._sizes.items()
        ]

    # ------------------------------------------------------------------ private
    def _is_due(self, key: int) -> bool:
        sizes = self._sizes.get(key)
        if sizes is None:
            return len(self._sizes) < _MOST_ROOTS
        return self.loop.coming >= sizes[-1][0] + _EVERY_STEPS

    def _note(self, root: RootRecord, tensor: Tensor) -> None:
        with torch.no_grad():
            norm = torch.linalg.vector_norm(tensor.detach(), dtype=_wide(tensor.dtype))
            size = norm / math.sqrt(tensor.numel())
        self._names[id(root)] = root.facts.name
        self._sizes.setdefault(id(root), deque(maxlen=_KEPT)).append((self.loop.coming, size))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32
