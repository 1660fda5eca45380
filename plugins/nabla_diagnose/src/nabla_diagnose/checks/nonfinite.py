"""RUN101 and RUN102: a loss or a gradient norm that is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue

from ..chart import Chart, Moment
from ..rules.level import NON_FINITE_GRADIENT_LOGGED, NON_FINITE_LOSS_LOGGED
from .check import Check, Finding, verdict

__all__ = ["NonFiniteCheck"]

_SEARCHING_ROWS = 25
"""A loss scaler that starts at 2 ** 24 finds its scale with fewer skipped steps in a row."""


class NonFiniteCheck(Check):
    """Reports the first row whose loss, or whose gradient before it, is not finite."""

    rules = (NON_FINITE_LOSS_LOGGED, NON_FINITE_GRADIENT_LOGGED)

    def __init__(self) -> None:
        self._last: float | None = None
        self._bad_rows = 0
        self._bad_since = Moment(0, 0)
        self._bad_value = 0.0
        self._told: set[str] = set()
        self._finite_again: Moment | None = None

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        loss, norm = chart.loss, chart.grad_norm
        if loss is None:
            return ()
        finite = math.isfinite(loss)
        if finite and (norm is None or math.isfinite(norm)):
            self._last = loss
            self._bad_rows = 0
            return ()
        return self._judge(chart, loss, norm, finite)

    def _judge(
        self, chart: Chart, loss: float, norm: float | None, finite: bool
    ) -> Iterable[Issue]:
        if finite and norm is not None:
            if not self._bad_rows:
                self._bad_since, self._bad_value = chart.now, norm
            self._bad_rows += 1
            if self._bad_rows == _SEARCHING_ROWS:
                yield from self._gradient(chart)
        elif not finite:
            if self._bad_rows:
                yield from self._gradient(chart)
            if "loss" not in self._told:
                self._told.add("loss")
                yield self._loss(chart, loss)

    def _gradient(self, chart: Chart) -> Iterable[Issue]:
        if "gradient" in self._told:
            return
        self._told.add("gradient")
        rows = "row" if self._bad_rows == 1 else "rows"
        yield verdict(
            NON_FINITE_GRADIENT_LOGGED,
            chart,
            Finding(
                message=f"The gradient norm is {self._bad_value} at step {self._bad_since.step} "
                f"while the loss is finite, {self._bad_rows} {rows} in a row.",
                onset=self._bad_since,
                confidence=1.0,
                evidence={"rows": self._bad_rows, "grad_norm": self._bad_value},
            ),
        )

    def _loss(self, chart: Chart, loss: float) -> Issue:
        before = "it is the first row" if self._last is None else f"it was {self._last:.6g} before"
        return verdict(
            NON_FINITE_LOSS_LOGGED,
            chart,
            Finding(
                message=f"The loss is {loss} at step {chart.step}; {before}.",
                onset=chart.now,
                confidence=1.0,
                evidence={"finite_rows": chart.rows - 1, "loss": loss},
            ),
        )
