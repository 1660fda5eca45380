"""What a program restores: modules from state dicts, and parts of checkpoint files.

``torch.load`` and the ``load_state_dict`` methods are observed, not replaced in what they do. Of a
checkpoint only shapes and names are kept, no tensor.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..facts import Place
from ..loop.watch import EVERY_EVENT, Watch
from ..taps.patching import Patches, Replacement
from ..taps.place import user_place
from .checkpoint_files import FileWeights
from .checkpoint_parts import PartFacts, compare_part, parts_of
from .own_states import OwnState, OwnStates
from .restored_owners import RestoredOwners
from .state_dicts import ModuleLoad, NamesBefore

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop

__all__ = ["CheckpointFacts", "CheckpointWatch"]

_SETTLED_STEPS = 3
_MAX_LOADS = 64
_MAX_FILES = 16
_MAX_PARTS = 64


@dataclass(slots=True, kw_only=True, eq=False)
class CheckpointFacts:
    """One file that was loaded.

    Attributes:
        place: where.
        parts: its parts of known kind.
        model_restored: whether a module was given a state dict since.
        steps_after: steps since the model was restored.
        owners: the optimizers that were given a state dict since.
    """

    place: Place | None = None
    parts: list[PartFacts] = field(default_factory=list)
    owners: RestoredOwners = field(default_factory=RestoredOwners)
    model_restored: bool = False
    steps_after: int = 0


class CheckpointWatch(Watch):
    """Follows loading.

    Attributes:
        loads: modules that were given a state dict since a detector last looked.
        settled: checkpoints after which three steps were made, since a detector last looked.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.loads: list[ModuleLoad] = []
        self.settled: list[CheckpointFacts] = []
        self._open: list[CheckpointFacts] = []
        self._files: list[FileWeights] = []
        self._own = OwnStates()
        self._repeats: weakref.WeakKeyDictionary[Module, tuple[int, int]]
        self._repeats = weakref.WeakKeyDictionary()  # of each module: last step and count

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return frozenset() if self._open else EVERY_EVENT

    def start(self, patches: Patches) -> None:
        """Follow files and state dicts."""
        patches.replace(torch, "load", self._wrap_file)
        patches.replace(Module, "load_state_dict", self._wrap_module)
        patches.replace(Module, "state_dict", self._wrap_state)
        patches.replace(Optimizer, "load_state_dict", self._wrap_kind("optimizer"))
        patches.replace(torch.amp.GradScaler, "load_state_dict", self._wrap_kind("scaler"))
        for owner in _schedulers(LRScheduler):
            patches.replace(owner, "load_state_dict", self._wrap_kind("scheduler"))

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Count steps after a resume, and compare what was not restored with what is used."""
        if not self._open:
            return
        for checkpoint in tuple(self._open):
            checkpoint.owners.note_step(optimizer)
            if not checkpoint.model_restored:
                continue
            checkpoint.steps_after += 1
            if checkpoint.steps_after == _SETTLED_STEPS:
                self._open.remove(checkpoint)
                self.settled.append(checkpoint)
                remade = checkpoint.owners.was_remade(optimizer)
                for part in checkpoint.parts:
                    part.remade = remade and part.kind == "optimizer" and part.restored
                    compare_part(part, optimizer)
                    if not all(found.facts.loaded for found in record.records):
                        part.fits = False  # a part of the model is new

    # ------------------------------------------------------------------ replaced attributes
    def _wrap_file(self, original: Replacement) -> Replacement:
        def load(*args: object, **kwargs: object) -> object:
            content = original(*args, **kwargs)
            self.guarded(lambda: self._opened(content))
            return content

        return load

    def _wrap_kind(self, kind: str) -> Callable[[Replacement], Replacement]:
        def wrap(original: Replacement) -> Replacement:
            def load_state_dict(owner: object, *args: object, **kwargs: object) -> object:
                outcome = original(owner, *args, **kwargs)
                self.guarded(lambda: self._restored(kind, owner))
                return outcome

            return load_state_dict

        return wrap

    def _wrap_module(self, original: Replacement) -> Replacement:
        def load_state_dict(
            module: Module, state_dict: Mapping[str, object], *args: object, **kwargs: object
        ) -> object:
            before: list[NamesBefore] = []
            own: list[OwnState] = []
            self.guarded(lambda: before.append(NamesBefore(module)))
            self.guarded(lambda: own.append(self._own.look(module, state_dict)))
            outcome = original(module, state_dict, *args, **kwargs)
            strict = bool(kwargs.get("strict", args[0] if args else True))
            if before and own:
                self.guarded(
                    lambda: self._module_loaded(
                        module, state_dict, before[0].compare(module, state_dict, strict), own[0]
                    )
                )
            return outcome

        return load_state_dict

    def _wrap_state(self, original: Replacement) -> Replacement:
        def state_dict(module: Module, *args: object, **kwargs: object) -> object:
            state = original(module, *args, **kwargs)
            if not args and kwargs.get("destination") is None and isinstance(state, Mapping):
                self.guarded(lambda: self._own.note(state, self.loop.coming))
            return state

        return state_dict

    # ------------------------------------------------------------------ private
    def _opened(self, content: object) -> None:
        if isinstance(content, (list, tuple)) and len(content) <= _MAX_PARTS:
            content = dict(enumerate(content))
        if not isinstance(content, Mapping):
            return
        place = user_place()
        if len(self._files) < _MAX_FILES:
            self._files.append(FileWeights(content, place))
        parts = list(parts_of(content))
        if parts:
            self._open.append(CheckpointFacts(place=place, parts=parts))
            self.loop.calm.attend()  # the steps after it are counted

    def _restored(self, kind: str, owner: object) -> None:
        for checkpoint in self._open:
            if isinstance(owner, Optimizer):
                checkpoint.owners.note_restored(owner)
            for part in checkpoint.parts:
                part.restored = part.restored or part.kind == kind

    def _module_loaded(
        self, module: Module, state: Mapping[str, object], load: ModuleLoad, own: OwnState
    ) -> None:
        for checkpoint in self._open:
            checkpoint.model_restored = True
        for file in self._files:
            file.offer(state)
        if not own.entries:
            self._own.loaded(module)
            self._repeats.pop(module, None)
        if len(self.loads) < _MAX_LOADS:
            self.loads.append(self._own_load(module, load, own) if own.entries else load)

    def _own_load(self, module: Module, load: ModuleLoad, own: OwnState) -> ModuleLoad:
        """Complete what is known of a call that was given the module's own tensors."""
        now, trained = self.loop.coming, self._is_trained(module)
        last, count = self._repeats.get(module, (now, 0))
        fresh = own.untouched and trained
        if fresh and (now > last or not count):
            self._repeats[module] = (now, count + 1)
        names = NamesBefore(module)
        hidden = [names.hidden_in(file.shapes) for file in self._files if not file.taken]
        kept = None if own.step is None or not trained else now - own.step
        return replace(
            load,
            own=own.entries,
            overwritten=own.overwritten,
            kept_steps=0 if own.untouched else kept,  # nothing was to be restored
            repeats=count + 1 if fresh and now > last else 0,
            hidden=next(filter(None, hidden), ()),
        )

    def _is_trained(self, module: Module) -> bool:
        """Whether an optimizer holds its parameters: only then they change between two steps."""
        known = self.loop.gradients.known(module.parameters())
        return any(record.facts.optimizers for record in known)


def _schedulers(owner: type[LRScheduler]) -> Iterator[type[LRScheduler]]:
    yield owner
    for child in owner.__subclasses__():
        yield from _schedulers(child)
