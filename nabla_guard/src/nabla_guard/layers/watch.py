"""Ranges of every leaf module's outputs and of their gradients, one set per step.

Each output is reduced once, by :func:`torch.aminmax`, into a preallocated slot on its device; so is
each gradient that reaches it. What a step gathered is copied to the host with the one read that a
step makes anyway. Nothing is attached to modules or tensors: leaf modules are met at the door
through which every module is called, gradients at the autograd node of the output.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack
from torch.nn import Module

from ..loop.watch import Watch
from ..origin.naming import is_compiled, uncompiled
from ..rules import NON_FINITE_FORWARD
from ..taps.instrument import INSTRUMENT
from ..taps.transforms import in_transform
from .bank import Held
from .here import OUTPUT, Here, Muted, Recomputed
from .joining import Ranges, joined
from .nothing import NoLayers
from .roster import Chosen, Roster, chooser
from .swallowed import swallowed_numbers

if TYPE_CHECKING:
    from ..deep.sites import OpRange
    from ..facts import NumberFacts
    from ..loop.book import OptimizerRecord
    from ..loop.evidence import Again
    from ..loop.live import LiveLoop
    from ..loop.reading import StepReading
    from ..taps.inside import Inside
    from ..taps.patching import Patches

__all__ = ["LayerWatch", "watch_layers"]

_MOST_REMARKS = 8
_MOST_EXPLANATIONS = 4

_current_task = torch._C._current_graph_task_id
_tracing = torch._C._get_tracing_state
_CAN_CAPTURE: bool = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]


class LayerWatch(Watch):
    """Looks at every leaf module that a model calls.

    Calls of one module in one step are joined by minimum and maximum, also those of several
    micro-batches. Steps that were discarded (by a gradient scaler, say) leave nothing behind.

    Args:
        loop: the loop that is watched.
    """

    measures = True
    whole = False
    unasked = not _CAN_CAPTURE  # no CUDA graph may be captured meanwhile

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.roster = Roster(chooser())
        self._local = threading.local()
        self._held: list[Held] = []
        self._past: deque[tuple[int, list[Held]]] = deque(maxlen=0)
        self.odd: list[int] = []
        self._taken = False
        self.usual: set[int] = set()
        self._remarks: set[str] = set()
        self._explained = 0
        self._on: weakref.WeakSet[Here] = weakref.WeakSet()

    def choose(self, chosen: Chosen) -> None:
        """Say which modules to look at; see :func:`.roster.chooser`."""
        self.roster = Roster(chosen)

    # ------------------------------------------------------------------ for detectors
    @property
    def layout(self) -> tuple[str, ...]:
        """Names of the layers, in the order in which they were first called; it only grows."""
        return self.roster.names

    @property
    def ranges(self) -> Mapping[str, list[float]]:
        """The arrays of the present step by name; empty when nothing was seen.

        Their names are :data:`.joining.ARRAYS`.

        What was not measured in this step has the empty range: its minimum is ``inf`` and its
        maximum ``-inf``. A range that holds a NaN is NaN. Gradients are those of the loss as it was
        scaled.
        """
        return Ranges(self._held, len(self.roster.names))

    @property
    def shared(self) -> frozenset[int]:
        """Numbers of the layers without parameters that the latest step called more than others.

        They pass on what several layers gave them, and have no one place among the layers.
        """
        latest = self._held or (self._past[-1][1] if self._past else ())
        calls = Counter(owner for held in latest for owner in held.owners if owner % 2 == OUTPUT)
        least = min(calls.values(), default=0)
        return frozenset(layer for layer in self.roster.bare if calls[2 * layer + OUTPUT] > least)

    @property
    def recent(self) -> Iterator[tuple[int, Mapping[str, list[float]]]]:
        """The latest steps with their arrays, the oldest first and the present one last.

        Only what :meth:`keep` asked for; a step in which nothing was measured is left out.
        """
        size = len(self.roster.names)
        for step, held in self._past:
            yield step, joined(held, size)
        if self._held:
            yield self.loop.index, joined(self._held, size)

    def keep(self, steps: int) -> None:
        """Keep what at least so many of the coming steps gather; they are scalars on the host."""
        self._past = deque(self._past, max(steps, self._past.maxlen or 0))

    @property
    def operations(self) -> Sequence[OpRange]:
        """The ranges of ops over the whole run; only deep mode has any."""
        return ()

    # ------------------------------------------------------------------ as a family of facts
    def start(self, patches: Patches) -> None:
        """See :class:`..loop.watch.Watch`."""
        self.loop.layers = self
        INSTRUMENT.look_inside(self)

    def stop(self) -> None:
        """See :class:`..loop.watch.Watch`."""
        INSTRUMENT.look_away(self)
        self.loop.layers = NoLayers()
        for here in self._on:
            here.close()
        self._local = threading.local()
        self._held = []
        self._say_what_was_compiled()

    # ------------------------------------------------------------------ told by the loop
    def begin(self, root: Module) -> Inside | None:
        """See :class:`..taps.inside.Insider`."""
        if not self.looks_into(root):
            return None
        here = self.here
        here.enter(root)
        if _current_task() != -1:
            return Recomputed(here)
        return Muted(here) if _len_torch_function_stack() else here

    def gatherer(self) -> Here | None:
        """Return what gathers the ranges of the calling thread."""
        return self.here

    def looks_into(self, root: Module) -> bool:
        """Whether a call of a root module is part of a step that is measured."""
        loop = self.loop
        if not torch.is_grad_enabled() or _len_torch_dispatch_stack() or in_transform():
            return False
        if not loop.due or not loop.scope.has_module(root):
            return False
        return _tracing() is None and (not _CAN_CAPTURE or not _is_capturing())

    def root_over(self) -> None:
        """A root module that was called with gradients is over; the loss comes next."""

    def backward_begins(self) -> None:
        """What only the program does before a backward pass is over."""

    def backward_runs(self) -> None:
        """The backward pass is going to run at once."""

    def step_begins(self) -> None:
        """An optimizer is about to step."""

    def backward_over(self) -> None:
        """A backward pass of this thread is over."""
        self.here.mark()

    def cleared(self) -> None:
        """Gradients were cleared in this thread."""
        self.here.drop_marked()

    def send(self) -> None:
        """The step is about to be read."""
        self.here.send()

    def receive(self) -> list[int]:
        """Take what the step gathered; return the numbers of the layers whose outputs are odd.

        An odd output holds a NaN or a positive infinity although no step before was odd there.
        Outputs with nothing but negative infinities are masks.
        """
        if not self._taken:
            self._taken = True
            for held in self.here.receive():
                mine = self.sort(held) if self.whole else held
                self._held.append(mine)
                if not math.isfinite(sum(mine.values)):
                    self.odd += self._odd_in(mine)
        return self.odd

    def sort(self, held: Held) -> Held:
        """Return the part of what a step gathered that belongs to layers."""
        return held

    def explain(
        self, odd: Sequence[int], record: OptimizerRecord, reading: StepReading, again: Again
    ) -> NumberFacts | None:
        """Execute a step with odd outputs again, although everything else in it is finite.

        Args:
            odd: numbers of the layers; they are no news from now on.
            record: the optimizer that is about to step.
            reading: what was measured.
            again: executes the step again.

        Returns:
            What is wrong; ``None`` when the odd outputs do no harm.
        """
        self.usual.update(odd)
        if self._explained >= _MOST_EXPLANATIONS:
            return None
        self._explained += 1
        return swallowed_numbers(record, reading, again(record))

    def forget(self) -> None:
        """The step is over."""
        if self._held and self._past.maxlen:
            self._past.append((self.loop.index, self._held))
        if not self._taken:
            self.here.clear()
        self._held, self.odd, self._taken = [], [], False

    # ------------------------------------------------------------------ told by the threads
    def number(self, root: Module, leaf: Module) -> int:
        """Return the number of a leaf module; -1 when it is not looked at."""
        return self.roster.number(root, leaf)

    def unseen(self, layer: int, what: str) -> None:
        """Say, once, what of a layer cannot be measured."""
        name = self.roster.names[layer] if layer >= 0 else "a module"
        self._remark(f"ranges of {name}: {what} are not measured")

    # ------------------------------------------------------------------ private
    @property
    def here(self) -> Here:
        """What gathers the ranges of the calling thread."""
        here: Here | None = getattr(self._local, "here", None)
        if here is None:
            with torch._C.DisableTorchFunction():  # modes of the program must not see ours
                here = self._local.here = self.make_here()
            self._on.add(here)
        return here

    def make_here(self) -> Here:
        """Return what gathers ranges in a new thread."""
        return Here(self)

    def _odd_in(self, held: Held) -> list[int]:
        values = iter(held.values)
        return [
            owner // 2
            for owner, _, high in zip(held.owners, values, values, strict=True)
            if owner % 2 == OUTPUT and not high < math.inf and owner // 2 not in self.usual
        ]

    def _remark(self, text: str) -> None:
        if text not in self._remarks and len(self._remarks) < _MOST_REMARKS:
            self._remarks.add(text)
            self.loop.session.undecide(NON_FINITE_FORWARD, text)

    def _say_what_was_compiled(self) -> None:
        for root in self.loop.roots.living:
            for part in root.modules():
                if is_compiled(part):
                    kind = type(uncompiled(part)).__name__
                    self._remark(f"modules inside the compiled {kind} are not seen")
                    break


def watch_layers(loop: LiveLoop, chosen: Chosen) -> LayerWatch:
    """Let a loop look at its leaf modules, from the moment at which it is connected.

    Args:
        loop: not connected yet.
        chosen: which modules, see :func:`.roster.chooser`.
    """
    loop.layers = watch = loop.watches.gather(LayerWatch)
    watch.choose(chosen)
    return watch


def _is_capturing() -> bool:
    """Whether a CUDA graph is being captured, which would replay our reductions for ever."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    return torch.cuda.is_current_stream_capturing()
