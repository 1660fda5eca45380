"""AUD107 to AUD109: clipping and loss scaling in the right order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nabla_core.issue import Issue, Quantity
from nabla_core.records import StepRecord
from nabla_guard.facts import LoopFacts, OptimizerFacts, Place
from nabla_guard.families.clipping import ClipFacts, ClipWatch
from nabla_guard.families.scaling import ScalerWatch

from .places import at, where
from .rules.protocol import CLIP_BEFORE_UNSCALE, CLIP_OF_NOTHING, SCALER_PROTOCOL
from .streak import CONSECUTIVE, Streaks

__all__ = ["MixedPrecisionDetector"]

TWICE = 2
"""These calls are never right, but the first one may fall into a set-up step."""


class MixedPrecisionDetector:
    """Judges what was clipped, and whether a step was given scaled gradients."""

    rules = (CLIP_BEFORE_UNSCALE, CLIP_OF_NOTHING, SCALER_PROTOCOL)

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._clips = facts.gather(ClipWatch)
        self._scaler = facts.gather(ScalerWatch)
        self._streaks = Streaks()
        self._told: set[tuple[str, object]] = set()

    @property
    def patient(self) -> bool:
        """See :class:`nabla_core.detector.Detector`."""
        return not (self._clips.suspects or self._scaler.direct or self._scaler.mixed)

    def _clips_in_vain(self, optimizer: OptimizerFacts, step: int) -> Iterator[Issue]:
        """Clipping between a step and the next backward, while none follows before the step."""
        idle = None if self._clips.useful else self._clips.idle
        holds = idle is not None and optimizer.wrote
        length = self._streaks.count(("vain", id(optimizer)), holds, step)
        if idle is not None and length == CONSECUTIVE and ("vain", idle.place) not in self._told:
            self._told.add(("vain", idle.place))
            yield _vain_issue(idle, optimizer, step)

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the step that is being closed."""
        optimizer = self._facts.stepping
        if optimizer is None:
            return ()
        vain = list(self._clips_in_vain(optimizer, record.step)) if self._clips.ever else []
        return vain if self.patient else [*vain, *self._judge(optimizer, record.step)]

    def _judge(self, optimizer: OptimizerFacts, step: int) -> Iterator[Issue]:
        for clip in self._clips.suspects:
            if not clip.gradients and self._again("nothing", clip.place, step):
                yield _nothing_issue(clip, step)
            elif clip.gradients and self._again("scaled", (clip.place, clip.function), step):
                yield _scaled_issue(clip, step)
        key = id(optimizer)
        if key in self._scaler.direct and optimizer.wrote and self._again("direct", key, step):
            place = self._scaler.direct[key]
            yield _direct_issue(optimizer, place, self._scaler.scale, step)
        if key in self._scaler.mixed and self._again("mixed", key, step):
            yield _mixed_issue(optimizer, self._scaler.mixed[key], self._scaler.scale, step)

    def _again(self, kind: str, key: object, step: int) -> bool:
        """Whether this is the second time; every further time is no news."""
        return self._streaks.count((kind, key), True, step) == TWICE


def _nothing_issue(clip: ClipFacts, step: int) -> Issue:
    return CLIP_OF_NOTHING.issue(
        f"{clip.function}{at(clip.place)} was given no gradient in {TWICE} calls, although "
        f"backward had written {clip.written} of them (limit 0): its list of parameters is empty "
        "or an iterator that is used up.",
        step=step,
        where=where(clip.place, clip.function),
        phase="loop",
        gradients_given=Quantity(value=0, unit="gradients", limit=1),
        gradients_written=clip.written,
    )


def _vain_issue(clip: ClipFacts, optimizer: OptimizerFacts, step: int) -> Issue:
    story = _why_in_vain(clip, optimizer)
    return CLIP_OF_NOTHING.issue(
        f"{clip.function}{at(clip.place)} clips to {clip.limit:g} at a time when no step can feel "
        f"it, before each of {CONSECUTIVE} steps in a row (limit 0): {story}.",
        step=step,
        where=where(clip.place, clip.function),
        phase="loop",
        gradients_given=Quantity(value=clip.gradients, unit="gradients"),
        gradients_used=clip.used,
        clip_limit=clip.limit,
    )


def _why_in_vain(clip: ClipFacts, optimizer: OptimizerFacts) -> str:
    if clip.strangers:
        return (
            f"its {clip.strangers} parameters are in no optimizer and have no gradient, unlike the "
            f"{len(optimizer.parameters)} of {optimizer.name}"
        )
    if clip.holder is not None:
        return (
            f"its {clip.used} gradients belong to another optimizer ({clip.holder.name}), whose "
            f"last step had already used them, and the {len(optimizer.parameters)} of the step "
            "that follows are not clipped"
        )
    if clip.used:
        return f"its {clip.used} gradients had already been used by {optimizer.name}.step"
    return "backward had not yet written its gradients"


def _scaled_issue(clip: ClipFacts, step: int) -> Issue:
    owner = clip.optimizer.name if clip.optimizer is not None else "the optimizer"
    return CLIP_BEFORE_UNSCALE.issue(
        f"{clip.function}{at(clip.place)} clips to {clip.limit:g} while the gradients of {owner} "
        f"are still multiplied by the loss scale {clip.scale:g} (limit 1): after unscaling almost "
        "nothing is left of them.",
        step=step,
        where=where(clip.place, clip.function),
        phase="loop",
        loss_scale=Quantity(value=clip.scale, limit=1.0),
        clip_limit=clip.limit,
        calls=TWICE,
    )


def _direct_issue(optimizer: OptimizerFacts, place: Place | None, scale: float, step: int) -> Issue:
    return SCALER_PROTOCOL.issue(
        f"{optimizer.name}.step{at(place)} is called directly on gradients that are still "
        f"multiplied by the loss scale {scale:g} (limit 1), in {TWICE} steps.",
        step=step,
        where=where(place, optimizer.name),
        phase="loop",
        loss_scale=Quantity(value=scale, limit=1.0),
        steps=TWICE,
    )


def _mixed_issue(optimizer: OptimizerFacts, place: Place | None, scale: float, step: int) -> Issue:
    return SCALER_PROTOCOL.issue(
        f"The gradients of {optimizer.name} are the sum of a loss multiplied by the loss scale "
        f"{scale:g} and of one that is not, whose backward is{at(place)}: unscaling divides the "
        f"second by {scale:g} (limit 1), in {TWICE} steps.",
        step=step,
        where=where(place, optimizer.name),
        phase="loop",
        loss_scale=Quantity(value=scale, limit=1.0),
        steps=TWICE,
    )
