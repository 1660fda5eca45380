"""RUN101 and RUN102: a loss or a gradient norm that is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.severity import Severity

from ..calm import Calm
from ..chart import Chart, Moment
from ..rules.level import NON_FINITE_GRADIENT_LOGGED, NON_FINITE_LOSS_LOGGED
from ..stretch import Stretch
from .check import Check, Finding, verdict

__all__ = ["NonFiniteCheck"]

_OTHERS_IN_A_ROW = 3
_MAIN = frozenset({"d_loss", "g_loss"})
"""Losses of a run that has no single one."""
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
        self._bad_update: float | None = None
        self._told: set[str] = set()
        self._others: set[str] = set()
        self._bad_others: dict[str, tuple[int, Moment]] = {}

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        loss, norm = chart.loss, chart.grad_norm
        if loss is None:
            return ()
        finite = math.isfinite(loss)
        if finite and (norm is None or math.isfinite(norm)):
            self._last = loss
            rows, self._bad_rows = self._bad_rows, 0
            return self._stepped(chart) if rows == 1 else ()
        return self._judge(chart, loss, norm, finite)

    def record(self, chart: Chart) -> Iterable[Issue]:
        """Follow the losses beside the training loss; one value may have nothing to average."""
        if chart.broken is not None or "other" in self._told:
            return
        for name in chart.other_losses:
            value = chart.signals.get(name)
            if value is None:
                continue
            if math.isfinite(value):
                self._others.add(name)
                self._bad_others.pop(name, None)
                continue
            count, since = self._bad_others.get(
                name, (0, Moment(max(0, chart.now.row), chart.recorded_step))
            )
            self._bad_others[name] = (count + 1, since)
            if count + 1 == _OTHERS_IN_A_ROW and name in self._others | _MAIN:
                self._told.add("other")
                yield self._other(chart, name, value, since)
                return

    @staticmethod
    def _other(chart: Chart, name: str, value: float, since: Moment) -> Issue:
        return verdict(
            NON_FINITE_LOSS_LOGGED,
            chart,
            Finding(
                message=f"{name} is {value} from step {since.step} on, {_OTHERS_IN_A_ROW} times in "
                f"a row (limit {_OTHERS_IN_A_ROW}).",
                onset=since,
                severity=None if name in _MAIN else Severity.MEDIUM,
                evidence={"signal": name, "times": _OTHERS_IN_A_ROW},
            ),
        )

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`; calm rows are finite, and the first one after a gradient counts."""
        return not self._bad_rows

    def pass_over(self, chart: Chart, stretch: Stretch) -> None:
        """See :class:`Check`."""
        self._last = stretch.columns["loss"][-1]

    def _judge(
        self, chart: Chart, loss: float, norm: float | None, finite: bool
    ) -> Iterable[Issue]:
        if finite and norm is not None:
            if not self._bad_rows:
                self._bad_since, self._bad_value = chart.now, norm
                self._bad_update = chart.update
            self._bad_rows += 1
            if self._bad_rows == _SEARCHING_ROWS:
                yield from self._gradient(chart)
        elif not finite:
            if self._bad_rows:
                yield from self._gradient(chart)
            if "loss" not in self._told:
                self._told.add("loss")
                yield self._loss(chart, loss)

    def _stepped(self, chart: Chart) -> Iterable[Issue]:
        """A single such gradient is skipped by a loss scaler; here a step was made with it.

        In rows that stand for several steps, the update may be that of another one.
        """
        update = self._bad_update
        alone = chart.stride == 1 and chart.now.step - self._bad_since.step == 1
        if "gradient" in self._told or update is None or not alone or not 0.0 < update < math.inf:
            return
        self._told.add("gradient")
        yield verdict(
            NON_FINITE_GRADIENT_LOGGED,
            chart,
            Finding(
                message=f"The gradient norm is {self._bad_value} at step {self._bad_since.step}, "
                f"and the step was made all the same: it changed the parameters by {update:.3g} of "
                "their size (limit 0).",
                onset=self._bad_since,
                severity=Severity.MEDIUM,
                confidence=0.9,
                evidence={
                    "update_ratio": Quantity(value=update, limit=0.0),
                    "grad_norm": self._bad_value,
                },
            ),
        )

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
