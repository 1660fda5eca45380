"""Contracts about the loss: finite, and not far above its recent level."""

from __future__ import annotations

import math
import statistics
from collections import deque
from numbers import Real
from typing import Unpack

from nabla_core.errors import UsageError
from nabla_core.issue import Quantity

from .declaration import Contract, TermArguments, read_terms
from .judgement import Judgement
from .rules import LOSS_EXPLODING, LOSS_NOT_FINITE
from .view import InputAbsent, StepView, TooEarly

__all__ = ["LossContracts", "TrainingContracts", "loss", "training"]


class LossContracts:
    """``nabla.contracts.loss``."""

    @staticmethod
    def finite(**terms: Unpack[TermArguments]) -> Contract:
        """Return the contract that the loss of every step is finite (CON101).

        Args:
            **terms: ``name``, ``every``, ``consecutive``, ``severity``, ``raise_on_failure``.

        Raises:
            UsageError: a term is wrong.
        """
        known = read_terms("loss.finite", terms, "the loss is finite")
        return Contract(
            name=known.name,
            rule=LOSS_NOT_FINITE,
            begin=lambda: _judge_finite,
            terms=known,
            only_unusual=True,
        )


class TrainingContracts:
    """``nabla.contracts.training``."""

    @staticmethod
    def loss_not_exploding(
        *, max_ratio: float = 10.0, window: int = 20, **terms: Unpack[TermArguments]
    ) -> Contract:
        """Return the contract that the loss stays near its recent level (CON105).

        Args:
            max_ratio: allowed loss over the median of the window; above 1.
            window: losses before the step that the median covers.
            **terms: ``name``, ``every``, ``consecutive``, ``severity``, ``raise_on_failure``.

        Raises:
            UsageError: a limit or a term is wrong.
        """
        call = "training.loss_not_exploding"
        if not (isinstance(max_ratio, Real) and max_ratio > 1.0):
            raise UsageError(f"{call}: max_ratio = {max_ratio!r}: needs a number of more than 1")
        if not (isinstance(window, int) and window >= 1):
            raise UsageError(f"{call}: window = {window!r}: needs a whole number, at least 1 step")
        name = f"the loss is at most {max_ratio:g} times its recent level"
        known = read_terms(call, terms, name)
        return Contract(
            name=known.name,
            rule=LOSS_EXPLODING,
            begin=lambda: _Level(max_ratio, window).judge,
            terms=known,
        )


loss = LossContracts()
"""Contracts about the loss of a step."""

training = TrainingContracts()
"""Contracts about the course of a run."""


def _judge_finite(view: StepView) -> Judgement | None:
    value = view.loss
    if math.isfinite(value):
        return None
    return Judgement(
        message=f"the loss is {value}; it must be finite",
        evidence={"loss": Quantity(value=value)},
        phase="loss",
    )


class _Level:
    """The recent losses of one optimizer's steps."""

    def __init__(self, max_ratio: float, window: int) -> None:
        self._max_ratio = max_ratio
        self._losses: deque[float] = deque(maxlen=window)

    def judge(self, view: StepView) -> Judgement | None:
        """See :data:`.judgement.Judge`."""
        value = view.loss
        earlier = tuple(self._losses)
        if math.isfinite(value):
            self._losses.append(value)
        if not earlier:
            if math.isfinite(value):
                raise TooEarly("there is no earlier loss to compare the first one with")
            return self._broken(value, math.nan, 0)
        level = statistics.median(earlier)
        if not level > 0.0:
            raise InputAbsent(f"the recent level {level:.3g} of the loss is not positive")
        if value <= self._max_ratio * level:
            return None
        return self._broken(value, level, len(earlier))

    def _broken(self, value: float, level: float, count: int) -> Judgement:
        ratio = value / level
        known = f"{ratio:.3g} times the median of the {count} losses before it"
        if not math.isfinite(ratio):
            known = f"after {count} losses with the median {level:.4g}"
        return Judgement(
            message=f"the loss is {value:.4g}, {known if count else 'and the first of its run'} "
            f"(limit {self._max_ratio:g} times)",
            evidence={
                "loss": Quantity(value=value),
                "ratio": Quantity(value=ratio, limit=self._max_ratio),
                "level": Quantity(value=level),
            },
            phase="loss",
        )
