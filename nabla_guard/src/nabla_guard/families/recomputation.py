"""Whether a block that backward computes again starts from the random state of its first run.

Any kind of checkpointing counts, torch's or by hand: a module that runs while the autograd engine
does
is a recomputation. From the first one on, the random state of that module's runs is compared.
"""

from __future__ import annotations

import random
import sys
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from ..loop.watch import EVERY_EVENT, Watch
from ..taps.backward import in_backward
from ..taps.patching import Patches, Replacement

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["RecomputationFacts", "RecomputationWatch"]

_PATIENCE_STEPS = 20


@dataclass(slots=True, kw_only=True, eq=False)
class RecomputationFacts:
    """A module that backward runs again.

    Attributes:
        module: its class name, with its path where a root module has it.
        compared: recomputations that were compared with first runs that drew random numbers.
        redrawn: those that started from a random state of none of the step's first runs.
        elsewhere: those of them for which that is Python's or numpy's generator alone.
    """

    module: str
    compared: int = 0
    redrawn: int = 0
    elsewhere: int = 0


@dataclass(slots=True)
class _Run:
    states: tuple[Tensor, ...]
    drew: list[bool] = field(default_factory=list)


class _Inside(threading.local):
    """The module that this thread is recomputing."""

    recomputed: Module | None = None


class RecomputationWatch(Watch):
    """Compares random states of the modules that backward runs again.

    Attributes:
        modules: what is known of each.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.modules: list[RecomputationFacts] = []
        self._known: weakref.WeakKeyDictionary[Module, RecomputationFacts] = (
            weakref.WeakKeyDictionary()
        )
        self._runs: dict[int, list[_Run]] = {}
        self._inside = _Inside()
        self._own = Patches()
        self._until: int | None = None  # where nothing is recomputed before this step, stop

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return frozenset() if self.modules else EVERY_EVENT

    def start(self, patches: Patches) -> None:
        """Follow calls of modules, unless enough was seen."""
        if self._until is None or self.loop.index + 1 < self._until or self.modules:
            self._own.replace(Module, "__call__", self._wrap)

    def stop(self) -> None:
        """Stop following and let go of the random states."""
        self._own.restore()
        self._runs.clear()

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Forget the step's first runs; where nothing is recomputed, stop looking."""
        self._runs.clear()
        index = self.loop.index
        if self._until is None:
            self._until = index + _PATIENCE_STEPS
        if index + 1 >= self._until and not self.modules:
            self.stop()

    def _wrap(self, original: Replacement) -> Replacement:
        is_compiling, modules = torch.compiler.is_compiling, self.modules

        def call(module: Module, *args: object, **kwargs: object) -> object:
            if is_compiling() or not (modules or in_backward()) or not self.watches:
                return original(module, *args, **kwargs)
            self._enter(module)
            try:
                return original(module, *args, **kwargs)
            finally:
                self._leave(module)

        return call

    def _enter(self, module: Module) -> None:
        if in_backward():
            if self._inside.recomputed is None:
                self._inside.recomputed = module
                self.guarded(lambda: self._recompute(module))
        elif self._known and module in self._known:
            self._runs.setdefault(id(module), []).append(_Run(_random_states()))

    def _leave(self, module: Module) -> None:
        if self._inside.recomputed is module:
            self._inside.recomputed = None
        elif self._known and self._runs.get(id(module)) and not in_backward():
            run = self._runs[id(module)][-1]
            now = zip(run.states, _random_states(), strict=False)
            run.drew = [not torch.equal(then, state) for then, state in now]

    def _recompute(self, module: Module) -> None:
        facts = self._known.get(module)
        if facts is None:
            facts = self._known[module] = RecomputationFacts(module=self._name(module))
            self.modules.append(facts)
            return
        runs = self._runs.get(id(module), [])
        if not any(any(run.drew) for run in runs):
            return
        facts.compared += 1
        own, *others = [
            _is_another(index, state, runs) for index, state in enumerate(_random_states())
        ]
        facts.redrawn += own or any(others)
        facts.elsewhere += not own and any(others)

    def _name(self, module: Module) -> str:
        for root in self.loop.roots.living:
            for path, found in root.named_modules():
                if found is module and path:
                    return f"{type(root).__name__}.{path}"
        return type(module).__name__


def _is_another(index: int, state: Tensor, runs: list[_Run]) -> bool:
    """Whether a generator that was drawn from stands where it stood at the start of no run."""
    drew = any(len(run.drew) > index and run.drew[index] for run in runs)
    starts = [run.states[index] for run in runs if len(run.states) > index]
    return drew and not any(torch.equal(start, state) for start in starts)


def _plain(kept: Iterable[object]) -> list[object]:
    """A state of numpy with the bytes of its arrays."""
    return [found.tobytes() if hasattr(found, "tobytes") else found for found in kept]


def _random_states() -> tuple[Tensor, ...]:
    """Torch's state, Python's, and numpy's where it was imported: checkpoint keeps only torch's."""
    state = torch.get_rng_state()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state = torch.cat([state, torch.cuda.get_rng_state()])
    own = torch.tensor([hash(random.getstate())])
    numpy = sys.modules.get("numpy.random")
    if numpy is None:
        return state, own
    return state, own, torch.tensor([hash(repr(_plain(numpy.get_state())))])
