"""Derivatives of derivatives: calls of ``autograd.grad`` on what another one has made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import Node

from ..facts import Place
from ..loop.watch import EVERY_EVENT, Watch
from ..taps.backward import ENTRY, in_backward
from ..taps.patching import Patches, Replacement
from ..taps.place import user_place
from ..taps.transforms import in_transform
from .graph import nodes_from

if TYPE_CHECKING:
    from ..loop.live import LiveLoop

__all__ = ["NestedFacts", "NestedWatch"]

_CALLS = 3
_MAX_WALK = 2_000


@dataclass(slots=True, kw_only=True, eq=False)
class NestedFacts:
    """A line that takes a derivative of a derivative.

    Attributes:
        place: the line.
        calls: times that it was looked at; no more than three.
        flat: those in which every result was exactly zero or not connected.
        unconnected: those in which every result was not connected.
    """

    place: Place | None
    calls: int = 0
    flat: int = 0
    unconnected: int = 0


class NestedWatch(Watch):
    """Looks at the first results of every second derivative.

    Attributes:
        lines: what is known of each line.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.lines: dict[str, NestedFacts] = {}
        self._made: set[Node] = set()
        self._ever = False

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return frozenset() if self._ever else EVERY_EVENT

    def start(self, patches: Patches) -> None:
        """Follow the engine's entry."""
        patches.replace(torch.autograd, ENTRY, self._wrap)

    def stop(self) -> None:
        """Let go of the graph."""
        self._made.clear()

    def backward_ended(self, *given: object) -> None:
        """The graph that the first derivatives belonged to has been used."""
        self._made.clear()

    def _wrap(self, original: Replacement) -> Replacement:
        def run_backward(outputs: Sequence[Tensor], *args: object, **kwargs: object) -> object:
            gradients = original(outputs, *args, **kwargs)
            if not kwargs.get("accumulate_grad") and not in_backward() and not in_transform():
                self.guarded(lambda: self._see(outputs, gradients))
            return gradients

        return run_backward

    def _see(self, outputs: Sequence[Tensor], gradients: object) -> None:
        results = list(gradients) if isinstance(gradients, (tuple, list)) else []
        if self._made and self._is_second(outputs):
            self._judge([found for found in results if isinstance(found, Tensor)])
        for found in results:
            if isinstance(found, Tensor) and found.grad_fn is not None:
                self._made.add(found.grad_fn)
        if self._made and not self._ever:
            self._ever = True
            self.loop.calm.attend()  # from now on the end of each backward frees a graph

    def _is_second(self, outputs: Sequence[Tensor]) -> bool:
        tops = [output.grad_fn for output in outputs if output.grad_fn is not None]
        for count, node in enumerate(nodes_from(tops)):
            if node in self._made:
                return True
            if count > _MAX_WALK:
                return False
        return False

    def _judge(self, results: list[Tensor]) -> None:
        place = user_place()
        line = self.lines.setdefault(str(place), NestedFacts(place=place))
        if line.calls >= _CALLS:
            return
        line.calls += 1
        line.unconnected += not results
        line.flat += not any(bool(found.detach().any()) for found in results)
