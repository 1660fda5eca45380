"""RUN103, RUN301 and RUN502: single rows far outside of all others."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from nabla_core.issue import Evidence, Issue, Quantity

from ..chart import CALM_ROWS, Chart, Moment
from ..robust import median, spread
from ..rules.gradients import GRADIENT_SPIKE
from ..rules.level import LOSS_SPIKE
from ..rules.samples import OUTLIER_BATCH
from .check import Check, Finding, verdict

__all__ = ["SpikeCheck"]

_LOSS_NOISES = 12.0
_GRADIENT_NOISES = 9.0
_GRADIENT_RATIO = 8.0
_WAIT_ROWS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spike:
    at: Moment
    loss: float
    deviations: float
    gradient_ratio: float
    level: float
    noise: float


class SpikeCheck(Check):
    """Reports spikes that the loss and the gradient share, once the loss has come back."""

    rules = (LOSS_SPIKE, GRADIENT_SPIKE, OUTLIER_BATCH)

    def __init__(self) -> None:
        self._loss_limit = self._gradient_limit = math.inf
        self._level = self._noise = self._log_gradient = 0.0
        self._pending: _Spike | None = None
        self._shared = 0
        self._alone = 0
        self._told: set[str] = set()

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        loss = chart.loss
        if loss is None or chart.broken is not None:
            return ()
        if self._pending is not None:
            if chart.now.row - self._pending.at.row >= _WAIT_ROWS:
                return self._settle(chart, self._pending)
            return ()
        if loss > self._loss_limit:
            self._note(chart, loss)
        return ()

    def block(self, chart: Chart) -> Iterable[Issue]:
        """Learn from the rows before the next ones what is ordinary."""
        if self._pending is None:
            self._learn(chart)
        return ()

    def _learn(self, chart: Chart) -> None:
        calm = chart.level
        if calm is None or chart.options.batch_size == 1 or not chart.judged:
            return
        self._level = calm.median
        self._noise = max(
            calm.spread,
            calm.roughness,
            0.03 * abs(self._level),
            0.01 * chart.progress,
            1e-12,
        )
        self._loss_limit = self._level + max(
            _LOSS_NOISES * self._noise, 2.0 * (calm.highest - self._level)
        )
        if len(chart.gradients) >= CALM_ROWS:
            logs = [math.log(value) for value in list(chart.gradients)[-CALM_ROWS:]]
            self._log_gradient = median(logs)
            scale = max(spread(logs, self._log_gradient), 0.15)
            self._gradient_limit = max(_GRADIENT_NOISES * scale, math.log(_GRADIENT_RATIO))

    def _note(self, chart: Chart, loss: float) -> None:
        norm = chart.grad_norm
        jump = 0.0
        if norm is not None and 0.0 < norm < math.inf and math.isfinite(self._gradient_limit):
            jump = math.log(norm) - self._log_gradient
        self._pending = _Spike(
            at=chart.now,
            loss=loss,
            deviations=(loss - self._level) / self._noise,
            gradient_ratio=math.exp(jump) if jump > self._gradient_limit else 0.0,
            level=self._level,
            noise=self._noise,
        )

    def _settle(self, chart: Chart, spike: _Spike) -> Iterable[Issue]:
        self._pending = None
        back = median(chart.recent(5)) < spike.level + 6.0 * spike.noise
        undone = spike.loss - spike.level > 0.5 * (chart.start_level - spike.level)
        if not back:
            return
        if spike.gradient_ratio:
            self._shared += 1
            yield from self._shared_spike(chart, spike)
        elif undone:
            self._alone += 1
            if self._alone == 3:
                yield self._lonely_spike(chart, spike)

    def _shared_spike(self, chart: Chart, spike: _Spike) -> Iterable[Issue]:
        evidence: dict[str, Evidence] = {
            "deviations": Quantity(value=spike.deviations, limit=_LOSS_NOISES),
            "gradient_ratio": Quantity(value=spike.gradient_ratio, limit=_GRADIENT_RATIO),
            "level": spike.level,
            "loss": spike.loss,
        }
        text = (
            f"at step {spike.at.step} the loss was {spike.loss:.4g}, {spike.deviations:.3g} "
            f"deviations above its level of {spike.level:.4g} (limit {_LOSS_NOISES:g}), and the "
            f"gradient norm {spike.gradient_ratio:.3g} times its median"
        )
        if self._shared == 1:
            yield verdict(
                GRADIENT_SPIKE,
                chart,
                Finding(message=f"{text[0].upper()}{text[1:]}.", onset=spike.at, evidence=evidence),
            )
        elif self._shared == 2:
            yield verdict(
                OUTLIER_BATCH,
                chart,
                Finding(
                    message=f"For the second time a single batch stands out: {text}.",
                    onset=spike.at,
                    confidence=0.8,
                    evidence=evidence,
                ),
            )

    @staticmethod
    def _lonely_spike(chart: Chart, spike: _Spike) -> Issue:
        return verdict(
            LOSS_SPIKE,
            chart,
            Finding(
                message=f"For the third time the loss jumped and came back: {spike.loss:.4g} at "
                f"step {spike.at.step}, {spike.deviations:.3g} deviations above its level of "
                f"{spike.level:.4g} (limit {_LOSS_NOISES:g}).",
                onset=spike.at,
                confidence=0.8,
                evidence={"deviations": Quantity(value=spike.deviations, limit=_LOSS_NOISES)},
            ),
        )
