"""Root modules: which were called, in which mode, with what going in and coming out."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import call, is_

from torch import Tensor, nn
from torch.nn import Module

from ..facts import ModuleFacts
from ..origin.naming import plain_path, uncompiled
from ..taps.place import user_place
from ..taps.structure import modules_of, parameters_in
from .gradients import GradientTable

__all__ = ["RootRecord", "RootTable"]

_DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
_MODAL = (*_DROPOUTS, nn.modules.batchnorm._BatchNorm, nn.MultiheadAttention, nn.RNNBase)
_EARLY_CALLS = 4


def _depends_on_mode(module: Module) -> bool:
    if isinstance(module, _DROPOUTS):
        return module.p > 0
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return module.track_running_stats
    if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        return float(module.dropout) > 0
    return False


class RootRecord:
    """One root module with its facts.

    Attributes:
        facts: the public part.
        calls: number of calls.
        odd_outputs: names of outputs that held an infinity or a NaN in a step that went well.
        odd_inputs: the same for inputs.
        training: mode of the last call.
    """

    __slots__ = (
        "_parts",
        "calls",
        "facts",
        "odd_inputs",
        "odd_outputs",
        "ref",
        "switches",
        "training",
    )

    def __init__(self, module: Module) -> None:
        self.ref = weakref.ref(module)
        self.facts = ModuleFacts(name=_class_name(module))
        self.calls = 0
        self.training = False
        self.odd_outputs: set[str] = set()
        self.odd_inputs: set[str] = set()
        self.switches: list[weakref.ref[Module]] = []
        self._parts: list[weakref.ref[Module | Tensor]] = []

    def register(self, gradients: GradientTable) -> None:
        """Read the module's parameters and mode-dependent submodules again."""
        module = self.ref()
        if module is None:
            return
        modules = modules_of(module)
        switches = [found for found in modules if isinstance(found, _MODAL)]
        if switches or self.switches:
            self._note_switches(switches)
        plain = type(module).named_parameters is Module.named_parameters
        if self._has_changed([*modules, *parameters_in(modules)]) or not plain:
            self._name(module, gradients)

    def _has_changed(self, parts: Sequence[Module | Tensor]) -> bool:
        """Whether it does not consist of the very same modules and parameters any more."""
        known = self._parts
        if len(known) == len(parts) and all(map(is_, map(call, known), parts)):
            return False
        self._parts = [*map(weakref.ref, parts)]
        return True

    def _note_switches(self, modules: Sequence[Module]) -> None:
        switches = [found for found in modules if _depends_on_mode(found)]
        self.switches = [weakref.ref(found) for found in switches]
        self.facts.mode_dependent = tuple(sorted({type(found).__name__ for found in switches}))

    def _name(self, module: Module, gradients: GradientTable) -> None:
        self.facts.parameters = []
        for name, parameter in module.named_parameters():
            facts = gradients.record(parameter).facts
            if not facts.running:
                facts.running = True
                facts.name = plain_path(name)
                facts.root = self.facts
                facts.frozen_first = not parameter.requires_grad
            self.facts.parameters.append(facts)

    def count(self, module: Module, grad: bool) -> None:
        """Count a call."""
        facts = self.facts
        if not grad:
            facts.validated = facts.validated or not module.training
        elif module.training:
            facts.trained_calls += 1
            facts.ever_trained, facts.validated = True, False
        else:
            facts.evaluated_calls += 1
        if grad and not module.training:
            modules = (reference() for reference in self.switches)
            facts.active_mode_dependent = sum(bool(m is not None and m.training) for m in modules)


class RootTable:
    """The root modules of one watched loop.

    Attributes:
        now: those called since the last step.
    """

    def __init__(self, gradients: GradientTable) -> None:
        self._gradients = gradients
        self._records: dict[int, RootRecord] = {}
        self.now: dict[int, RootRecord] = {}

    def called(self, module: Module) -> RootRecord:
        """Return the record of ``module`` and note that it was called."""
        record = self._records.get(id(module))
        if record is None or record.ref() is not module:
            record = self._records[id(module)] = RootRecord(module)
            record.register(self._gradients)
        if record.calls < _EARLY_CALLS:
            record.facts.called_at = user_place()
        record.calls += 1
        self.now[id(module)] = record
        return record

    @property
    def modules(self) -> list[ModuleFacts]:
        """Facts of the roots called since the last step."""
        return [record.facts for record in self.now.values()]

    @property
    def living(self) -> list[Module]:
        """The root modules that are alive."""
        found = (record.ref() for record in self._records.values())
        return [module for module in found if module is not None]

    def called_before(self, module: Module) -> RootRecord | None:
        """Return the record of ``module`` if it was ever called as a root."""
        record = self._records.get(id(module))
        return record if record is not None and record.ref() is module else None

    def refresh(self) -> None:
        """Read the parameters of all living roots again: modules may have been replaced."""
        self._records = {
            key: record for key, record in self._records.items() if record.ref() is not None
        }
        for record in self._records.values():
            record.register(self._gradients)

    def end_step(self) -> None:
        """Start counting calls anew."""
        for record in self.now.values():
            record.facts.trained_calls = record.facts.evaluated_calls = 0
        self.now.clear()


def _class_name(module: Module) -> str:
    return type(uncompiled(module)).__name__
