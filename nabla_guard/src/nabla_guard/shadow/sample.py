"""One shadow sample: a first look at every region, then a close look at the wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..taps.instrument import INSTRUMENT
from .again import CannotExecute, Step
from .closeup import CloseUp
from .compare import relative_error
from .findings import WHOLE_STEP, RegionError, Sample, Unsupported
from .frames import Frame, Frames
from .heap import frugal
from .limits import ShadowLimits, error_limit
from .mode import Observer, OpCall, ShadowMode
from .risks import RiskObserver

if TYPE_CHECKING:
    from ..loop.live import LiveLoop

__all__ = ["ShadowSampler"]

_MAX_CLOSE_LOOKS = 3


class ShadowSampler:
    """Takes shadow samples of the step that a loop is closing.

    Args:
        limits: how far is too far.
    """

    def __init__(self, limits: ShadowLimits | None = None) -> None:
        self.limits = limits or ShadowLimits()
        self._explained: set[tuple[str | None, str]] = set()
        self._whole = False
        self._stopped = ""

    def start(self) -> None:
        """Judge everything anew."""
        self._explained.clear()
        self._stopped = ""

    def stop(self) -> None:
        """Take no more samples."""
        self._stopped = "the guard has ended"

    def run(self, loop: LiveLoop, *, thorough: bool = False, apart: bool = False) -> Sample:
        """Execute the forward pass of the present step in float64 beside itself.

        Samples take turns: one judges every region from the values that entered it, the next the
        whole step from its batch and parameters, which also shows what only adds up over modules.

        Nothing of the program changes: random states, buffers, attributes and gradients are put
        back.

        Args:
            loop: a loop whose optimizer is about to step.
            thorough: judge both ways.
            apart: judge every region, out of turn.

        Returns:
            What was found; what could not be judged is in ``unsupported``.
        """
        sample = Sample(step=loop.index)
        keeper = INSTRUMENT.keeper
        try:
            if self._stopped:
                raise CannotExecute(self._stopped)
            if not keeper.enabled:
                raise CannotExecute("the step was not kept")
            step = Step(keeper.kept)
            with frugal(step.modules):
                if thorough or apart or not self._whole:
                    self._try(step, sample, whole=False)
                if not apart and (self._whole or (thorough and not sample.errors)):
                    self._try(step, sample, whole=True)
            self._whole = self._whole if apart else not thorough and not self._whole
        except CannotExecute as missing:
            sample.unsupported.append(Unsupported(what=WHOLE_STEP, reason=str(missing)))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            sample.unsupported.append(Unsupported(what=WHOLE_STEP, reason=reason))
        return sample

    def _try(self, step: Step, sample: Sample, *, whole: bool) -> None:
        try:
            self._take(step, sample, whole=whole)
        except RuntimeError:
            if step.records_graph:
                raise
            step.records_graph = True  # some module takes a derivative while it runs
            self._take(step, sample, whole=whole)

    def _take(self, step: Step, sample: Sample, *, whole: bool) -> None:
        until = Step.boundary()
        look = _FirstLook(self._explained)
        risks = RiskObserver(self.limits, until)
        mode = _mode(look.left, look.opened, risks, whole=whole)
        step.execute(mode)
        sample.risks = sample.risks or risks.risks
        sample.unsupported += mode.unsupported.values()
        sample.worst = look.worst
        for number, dtype in list(look.suspects.items())[:_MAX_CLOSE_LOOKS]:
            close = CloseUp(number, dtype, self.limits, until, step.batch)
            step.execute(_mode(close.left, close.opened, close, whole=whole))
            if close.verdict is not None:
                sample.errors.append(replace(close.verdict, whole=whole))
            else:
                self._explained.add(look.places[number])
        if sample.errors:
            sample.errors = _with_losses(step, sample.errors)


def _with_losses(step: Step, errors: list[RegionError]) -> list[RegionError]:
    """Add what the errors do to the loss: everything in float64, from the batch on."""
    found: list[tuple[float, float]] = []

    def left(frame: Frame, tensor: Tensor, mirror: Tensor) -> None:
        if tensor.numel() == 1:
            found.append((float(tensor), float(mirror)))

    step.execute(_mode(left, lambda frame: None, _Nobody(), whole=True))
    if not found:
        return errors
    loss, truth = found[0]
    return [replace(error, loss=loss, loss_in_float64=truth) for error in errors]


class _FirstLook:
    """Notes the regions whose results are further from float64 than their dtype allows."""

    def __init__(self, explained: set[tuple[str | None, str]]) -> None:
        self.suspects: dict[int, torch.dtype] = {}
        self.places: dict[int, tuple[str | None, str]] = {}
        self.worst = 0.0
        self._explained = explained
        self._seen: set[tuple[str | None, str]] = set()

    def opened(self, frame: Frame) -> None:
        """Mirror every region."""

    def left(self, frame: Frame, tensor: Tensor, mirror: Tensor) -> None:
        """Judge a tensor that leaves a region."""
        limit = error_limit(frame.dtype)
        error = relative_error(tensor, mirror, limit)
        place = (frame.module, frame.model)
        if error <= limit:
            self.worst = max(self.worst, error)
        elif place not in self._explained and frame.number not in self.suspects:
            if place not in self._seen:
                self.suspects[frame.number] = frame.dtype
                self.places[frame.number] = place
            self._seen.add(place)


class _Nobody:
    """Looks at nothing."""

    def before(self, call: OpCall) -> None:
        """See :class:`.mode.Observer`."""

    def after(self, call: OpCall) -> None:
        """See :class:`.mode.Observer`."""


def _mode(
    left: Callable[[Frame, Tensor, Tensor], None],
    opened: Callable[[Frame], None],
    observer: Observer,
    *,
    whole: bool = False,
) -> ShadowMode:
    return ShadowMode(Frames(left, opened, whole=whole), observer)
