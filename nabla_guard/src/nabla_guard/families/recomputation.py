"""Whether a block that backward computes again starts from the random state of its first run.

Any kind of checkpointing counts, torch's or by hand: a module that runs while the autograd engine
does
is a recomputation. From the first one on, the random state of that module's runs is compared.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
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
    """

    module: str
    compared: int = 0
    redrawn: int = 0


@dataclass(slots=True)
class _Run:
    state: Tensor
    drew: bool = False


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
            self._runs.setdefault(id(module), []).append(_Run(_random_state()))

    def _leave(self, module: Module) -> None:
        if self._inside.recomputed is module:
            self._inside.recomputed = None
        elif self._known and self._runs.get(id(module)) and not in_backward():
            run = self._runs[id(module)][-1]
            run.drew = run.drew or not torch.equal(run.state, _random_state())

    def _recompute(self, module: Module) -> None:
        facts = self._known.get(module)
        if facts is None:
            facts = self._known[module] = RecomputationFacts(module=self._name(module))
            self.modules.append(facts)
            return
        runs = self._runs.get(id(module), [])
        if not any(run.drew for run in runs):
            return
        now = _random_state()
        facts.compared += 1
        facts.redrawn += not any(torch.equal(run.state, now) for run in runs)

    def _name(self, module: Module) -> str:
        for root in self.loop.roots.living:
            for path, found in root.named_modules():
                if found is module and path:
                    return f"{type(root).__name__}.{path}"
        return type(module).__name__


def _random_state() -> Tensor:
    state = torch.get_rng_state()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return torch.cat([state, torch.cuda.get_rng_state()])
    return state
