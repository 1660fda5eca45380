"""State dicts that were loaded into a module which was thrown away, while its like is trained."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from nabla_guard.facts import Place
from nabla_guard.loop.exact import looks_fresh, sample_of
from nabla_guard.loop.watch import EVERY_EVENT, Watch
from nabla_guard.taps.instrument import INSTRUMENT
from nabla_guard.taps.patching import Patches, Replacement
from nabla_guard.taps.place import user_place

if TYPE_CHECKING:
    from nabla_guard.loop.book import OptimizerRecord
    from nabla_guard.loop.live import LiveLoop
    from nabla_guard.loop.roots import RootRecord

__all__ = ["DiscardedLoad", "DiscardedLoadWatch"]

_MAX_LOADS = 16
_FEWEST = 2  # parameters


@dataclass(slots=True, kw_only=True, eq=False)
class DiscardedLoad:
    """One state dict that a module took.

    Attributes:
        module: class name of the module.
        place: where it was loaded.
        parameters: how many parameters it has.
        compared: how many of them a module of the same build, which began to train after that,
            had in other, random values; 0 while there was none.
    """

    module: str
    place: Place | None
    parameters: int
    compared: int = 0
    loaded: weakref.ref[Module] = field(repr=False)
    parts: list[weakref.ref[Tensor]] = field(repr=False)
    samples: dict[str, Tensor] = field(repr=False)

    @property
    def is_gone(self) -> bool:
        """Whether neither the module nor any parameter of it is left."""
        return self.loaded() is None and all(part() is None for part in self.parts)


class DiscardedLoadWatch(Watch):
    """Follows modules that were loaded and not called since.

    Attributes:
        open: those of which nobody has made use so far.
    """

    patient = EVERY_EVENT

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.open: list[DiscardedLoad] = []

    def start(self, patches: Patches) -> None:
        """Follow what is loaded, and whose state is read."""
        patches.replace(Module, "load_state_dict", self._wrap_load)
        patches.replace(Module, "state_dict", self._wrap_state)

    def stop(self) -> None:
        """Let go of the samples."""
        for load in self.open:
            load.samples.clear()

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """A module that is called, alone or inside another one, is in use."""
        if self.open and any(load.loaded() is not None for load in self.open):
            inside = set(map(id, module.modules()))
            self.open = [load for load in self.open if id(load.loaded()) not in inside]

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Before its first step, compare a trained module with what was loaded elsewhere."""
        if not self.open or record.facts.steps:
            return
        held = {id(found.ref()) for found in record.records}
        for module in self.loop.roots.living:
            own = dict(module.named_parameters())
            known = self.loop.gradients.known(own.values())
            restored = any(found.facts.loaded for found in known)
            if not restored and any(id(parameter) in held for parameter in own.values()):
                self.open = [load for load in self.open if not _took(load, own)]

    # ------------------------------------------------------------------ replaced methods
    def _wrap_load(self, original: Replacement) -> Replacement:
        def load_state_dict(module: Module, *args: object, **kwargs: object) -> object:
            outcome = original(module, *args, **kwargs)
            self.guarded(lambda: INSTRUMENT.keeper.unnoted(self._loaded, module))
            return outcome

        return load_state_dict

    def _wrap_state(self, original: Replacement) -> Replacement:
        def state_dict(module: Module, *args: object, **kwargs: object) -> object:
            if self.open:
                self.open = [load for load in self.open if load.loaded() is not module]
            return original(module, *args, **kwargs)

        return state_dict

    def _loaded(self, module: Module) -> None:
        self.open = [load for load in self.open if load.loaded() is not module]
        own = dict(module.named_parameters())
        known = self.loop.gradients.known(own.values())
        taking_part = any(found.facts.ever_held or found.facts.running for found in known)
        if len(own) < _FEWEST or taking_part or len(self.open) >= _MAX_LOADS:
            return
        self.open.append(
            DiscardedLoad(
                module=type(module).__name__,
                place=user_place(),
                parameters=len(own),
                loaded=weakref.ref(module),
                parts=[weakref.ref(parameter) for parameter in own.values()],
                samples={name: sample_of(parameter) for name, parameter in own.items()},
            )
        )


def _took(load: DiscardedLoad, own: Mapping[str, Tensor]) -> bool:
    """Whether a module has any of the loaded values; notes one of the same build that has none."""
    if list(own) != list(load.samples):
        return False
    if not all(own[name].numel() and _fits(own[name], kept) for name, kept in load.samples.items()):
        return False
    random = {name: value for name, value in own.items() if looks_fresh(value)}
    if any(torch.equal(sample_of(own[name]), load.samples[name]) for name in random):
        return True
    if random:
        load.compared = len(random)
    return False


def _fits(parameter: Tensor, kept: Tensor) -> bool:
    return sample_of(parameter).shape == kept.shape and parameter.dtype == kept.dtype
