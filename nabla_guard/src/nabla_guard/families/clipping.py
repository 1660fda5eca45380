"""Calls of the functions that clip gradients, and what they were given."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.optim import Optimizer

from ..facts import OptimizerFacts, Place
from ..loop.watch import EVERY_EVENT, Watch
from ..taps.patching import Patches, Replacement
from ..taps.place import user_place
from .scaling import ScalerWatch

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.gradients import GradientRecord
    from ..loop.live import LiveLoop

__all__ = ["ClipFacts", "ClipWatch"]

_MAX_CALLS = 64
_FAR = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipFacts:
    """One call that clipped gradients wrongly, as far as its own arguments show.

    Attributes:
        place: where it was called.
        function: name of the function.
        optimizer: holds the clipped parameters; ``None`` when nothing was clipped.
        gradients: number of gradients it was given.
        limit: the norm or value it clips to.
        scale: the loss scale that its gradients were still multiplied by; 1 for none.
        written: gradients that backward passes have written and nobody cleared.
        used: gradients that the last step had already used, of a call that was given no other.
        strangers: parameters of a call that was given nothing but such as no optimizer holds and
            that have no gradient.
        holder: the optimizer that holds the parameters of a call before the step of another one.
    """

    place: Place | None
    function: str
    optimizer: OptimizerFacts | None
    gradients: int
    limit: float
    scale: float = 1.0
    written: int = 0
    used: int = 0
    strangers: int = 0
    holder: OptimizerFacts | None = None


class ClipWatch(Watch):
    """Notes suspicious clipping since the last step.

    Attributes:
        ever: whether there was any call.
        suspects: those that clipped nothing, or gradients that were still scaled.
        idle: the last call that found no gradient which a step will use.
        useful: number of calls that found one.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.ever = False
        self.suspects: list[ClipFacts] = []
        self.idle: ClipFacts | None = None
        self.useful = 0
        self._idle_records: list[GradientRecord] = []
        self._scaler = loop.watches.gather(ScalerWatch)
        self._given: int | None = None

    @property
    def patient(self) -> frozenset[str]:
        """While each step is clipped as the ones before, there is nothing to follow."""
        return frozenset() if self.idle or self.suspects or self._scaler.ever else EVERY_EVENT

    def start(self, patches: Patches) -> None:
        """See :class:`.watch.Watch`."""
        patches.replace(clip_grad, "_get_total_norm", self._wrap_norm)
        patches.replace(clip_grad, "_clip_grads_with_norm_", self._wrap_clip)
        patches.replace(clip_grad, "clip_grad_value_", self._wrap_value)
        patches.replace(torch.nn.utils, "clip_grad_value_", self._wrap_value)

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        if self.idle is None or self.idle.strangers:
            return
        if not any(found.wrote for found in self._idle_records):
            holder = self._used_by_another(record)
            # else a part that takes no part: there was never anything to clip
            self.idle = None if holder is None else replace(self.idle, holder=holder)

    def step_ended(self, record: object, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        self.useful = 0
        self.idle, self._idle_records = None, []
        if self.suspects:
            self.suspects = []

    # ------------------------------------------------------------------ replaced functions
    def _wrap_norm(self, original: Replacement) -> Replacement:
        def get_total_norm(tensors: object, *args: object, **kwargs: object) -> object:
            if torch.compiler.is_compiling():
                return original(tensors, *args, **kwargs)
            given = _listed(tensors)
            self._given = len(given)
            return original(given, *args, **kwargs)

        return get_total_norm

    def _wrap_clip(self, original: Replacement) -> Replacement:
        def clip(parameters: object, max_norm: float, *args: object, **kwargs: object) -> object:
            if torch.compiler.is_compiling():
                return original(parameters, max_norm, *args, **kwargs)
            given = _listed(parameters)
            count, self._given = self._given, None
            if count is None:
                count = sum(_has_gradient(found) for found in given)
            if count and self._is_usual():
                self.useful += 1
                return original(given, max_norm, *args, **kwargs)
            self.guarded(lambda: self._note("clip_grad_norm_", given, count, float(max_norm)))
            if self.idle is not None and args:
                self.guarded(lambda: self._excuse(args[0], float(max_norm)))
            return original(given, max_norm, *args, **kwargs)

        return clip

    def _wrap_value(self, original: Replacement) -> Replacement:
        def clip(parameters: object, clip_value: float, *args: object, **kwargs: object) -> object:
            if torch.compiler.is_compiling():
                return original(parameters, clip_value, *args, **kwargs)
            given = _listed(parameters)
            count = sum(_has_gradient(found) for found in given)
            self.guarded(lambda: self._note("clip_grad_value_", given, count, float(clip_value)))
            return original(given, clip_value, *args, **kwargs)

        return clip

    def _is_usual(self) -> bool:
        """Whether a step that is like the ones before is being clipped as they were."""
        return self.ever and self.loop.calm.quick is not None and not self._scaler.ever

    def _note(self, function: str, given: list[object], count: int, limit: float) -> None:
        if not self.ever:
            self.ever = True
            self.loop.calm.attend()
        if len(self.suspects) >= _MAX_CALLS or math.isinf(limit):
            return  # an infinite limit only measures
        self._note_use(function, given, limit)
        if not count:
            written = 0 if given else sum(record.live for record in self.loop.gradients)
            if written:  # a part that takes no part may be clipped for nothing
                self._suspect(function, None, count, limit, 1.0, written)
            return
        if not self._scaler.ever:
            return
        for facts in _owners(self, given):
            if self._scaler.facts_still_scaled(facts):
                self._suspect(function, facts, count, limit, self._scaler.scale, count)

    def _note_use(self, function: str, given: list[object], limit: float) -> None:
        """Tell a call that no step can feel: behind the step, or before backward."""
        tensors = [found for found in given if isinstance(found, Tensor)]
        known = [] if self.loop.calm.on else self.loop.gradients.known(tensors)
        looks = bool(tensors) and not self.loop.calm.on
        if looks and not any(map(_has_gradient, tensors)) and not any(map(_takes_part, known)):
            self._note_strangers(function, tensors, limit)
            return
        if not known or len(known) < len(tensors) or not all(map(_is_idle, known)):
            self.useful += 1
            return
        self._idle_records = known
        self.idle = ClipFacts(
            place=user_place(),
            function=function,
            optimizer=None,
            gradients=sum(map(_has_gradient, tensors)),
            limit=limit,
            used=sum(record.live and record.grad is not None for record in known),
        )

    def _excuse(self, norm: object, limit: float) -> None:
        """A limit far above the norm only measures: it would not clip anything at any time."""
        idle = self.idle
        if idle is not None and idle.used and isinstance(norm, Tensor) and norm.numel() == 1:
            self.idle = None if _FAR * float(norm) <= limit else idle

    def _note_strangers(self, function: str, tensors: list[Tensor], limit: float) -> None:
        """Tell a call that was given another model, such as an averaged copy."""
        if self.idle is None:
            self._idle_records = []
            self.idle = ClipFacts(
                place=user_place(),
                function=function,
                optimizer=None,
                gradients=0,
                limit=limit,
                strangers=len(tensors),
            )

    def _used_by_another(self, record: OptimizerRecord) -> OptimizerFacts | None:
        """The one other optimizer that holds all that was clipped, and has stepped with it."""
        owners = {
            id(facts): facts for found in self._idle_records for facts in found.facts.optimizers
        }
        if len(owners) != 1 or id(record.facts) in owners:
            return None
        owner = next(iter(owners.values()))
        return owner if owner.steps and self.idle is not None and self.idle.used else None

    def _suspect(
        self,
        function: str,
        optimizer: OptimizerFacts | None,
        count: int,
        limit: float,
        scale: float,
        written: int,
    ) -> None:
        if self.loop.calm.on:
            self.loop.calm.attend()  # to be told of the next ones too
        self.suspects.append(
            ClipFacts(
                place=user_place(),
                function=function,
                optimizer=optimizer,
                gradients=count,
                limit=limit,
                scale=scale,
                written=written,
            )
        )


def _listed(given: object) -> list[object]:
    if type(given) is list:
        return given
    if isinstance(given, Iterable) and not isinstance(given, Tensor):
        return list(given)
    return [given]


def _takes_part(record: GradientRecord) -> bool:
    return record.facts.ever_held or record.facts.writes > 0


def _is_idle(record: GradientRecord) -> bool:
    """Whether there is no gradient that backward wrote, nobody cleared and no step has used."""
    parameter = record.ref()
    grad = None if parameter is None else parameter.grad
    if grad is None:
        return True
    untouched = (
        record.grad is not None and record.grad() is grad and record.version == grad._version
    )
    return untouched and (not record.live or record.used == grad._version)


def _has_gradient(found: object) -> bool:
    return isinstance(found, Tensor) and found.grad is not None


def _owners(watch: ClipWatch, given: list[object]) -> list[OptimizerFacts]:
    tensors = [found for found in given if isinstance(found, Tensor)]
    owners = {
        id(facts): facts
        for record in watch.loop.gradients.known(tensors)
        for facts in record.facts.optimizers
    }
    return list(owners.values())
