"""RUN103, RUN301 and RUN502: single rows far outside of all others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nabla_core.issue import Evidence, Issue, Quantity

from ..calm import Calm
from ..chart import Chart, Moment
from ..level import CALM_ROWS, Level
from ..robust import median, spread
from ..rules.gradients import GRADIENT_SPIKE
from ..rules.level import LOSS_SPIKE
from ..rules.samples import OUTLIER_BATCH
from .check import Check, Finding, verdict

__all__ = ["SpikeCheck"]

_LOSS_NOISES = 12.0
_LONELY_NOISES = 20.0
"""Without a gradient beside it: losses with heavy tails reach twelve."""
_GRADIENT_NOISES = 9.0
_GRADIENT_RATIO = 8.0
_WAIT_ROWS = 8
_SUDDEN = 50.0
"""Times the median of the gradient: a run that falls apart by itself gets there by and by."""
_WILD = 10.0
"""Times the loss of the untrained model: no sample that the data hold is that hard."""
_GONE = 0.05
"""Share of such a spike below which it is over, even if it left the loss higher than before."""
_SOLVED = 0.05
"""Share of its start below which a loss is so low that one hard sample stands out from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spike:
    at: Moment
    loss: float
    deviations: float
    gradient_ratio: float
    level: float
    noise: float
    start: float


class SpikeCheck(Check):
    """Reports spikes that the loss and the gradient share, once the loss has come back."""

    rules = (LOSS_SPIKE, GRADIENT_SPIKE, OUTLIER_BATCH)

    def __init__(self) -> None:
        self._pending: _Spike | None = None
        self._shared = 0
        self._alone = 0
        self._wild = 0

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        loss = chart.loss
        if loss is None:
            return ()
        if chart.broken is not None:
            return self._broke(chart)
        if self._pending is not None:
            if chart.now.row - self._pending.at.row >= _WAIT_ROWS:
                return self._settle(chart, self._pending)
            return ()
        level = chart.level
        if level is not None and loss > level.highest and loss > _limit(chart, level):
            self._note(chart, level, loss)
        return ()

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`."""
        return self._pending is None

    def ceilings(self, chart: Chart) -> Iterator[float]:
        """See :class:`Check`."""
        level = chart.level
        if level is None:
            yield math.inf
            return
        yield level.highest
        yield level.median + 2.0 * (level.highest - level.median)
        yield _limit(chart, level)

    def _note(self, chart: Chart, level: Level, loss: float) -> None:
        noise = _noise(chart, level)
        self._pending = _Spike(
            at=chart.now,
            loss=loss,
            deviations=(loss - level.median) / noise,
            gradient_ratio=_gradient_ratio(chart),
            level=level.median,
            noise=noise,
            start=chart.start_level,
        )

    def _broke(self, chart: Chart) -> Iterable[Issue]:
        """A single row after which the run fell apart: nothing came back, but it came at once."""
        spike, self._pending = self._pending, None
        if spike is None or self._shared or not spike.gradient_ratio or not _is_wild(chart, spike):
            return
        if chart.now.row - spike.at.row > _WAIT_ROWS or spike.gradient_ratio < _SUDDEN:
            return
        self._shared += 1
        yield verdict(
            GRADIENT_SPIKE,
            chart,
            Finding(
                message=f"{_described(spike)}; the loss was not finite "
                f"{chart.now.row - spike.at.row} rows later.",
                onset=spike.at,
                evidence=_evidence(spike),
            ),
        )

    def _settle(self, chart: Chart, spike: _Spike) -> Iterable[Issue]:
        self._pending = None
        left = median(chart.recent(5)) - spike.level
        back = left < 6.0 * spike.noise or (
            _is_wild(chart, spike)
            and spike.gradient_ratio > 0.0
            and left < _GONE * (spike.loss - spike.level)
        )
        undone = spike.loss - spike.level > 0.5 * (chart.start_level - spike.level)
        solved = 0.0 <= spike.level < _SOLVED * chart.start_level
        if not back or (solved and not undone):
            return
        if spike.gradient_ratio:
            self._shared += 1
            yield from self._shared_spike(chart, spike)
        elif undone and spike.deviations > _LONELY_NOISES:
            self._alone += 1
            self._wild += _is_wild(chart, spike)
            if self._alone == 3 or (self._alone == self._wild == 2):
                yield self._lonely_spike(chart, spike)

    def _shared_spike(self, chart: Chart, spike: _Spike) -> Iterable[Issue]:
        evidence, text = _evidence(spike), _described(spike)
        if self._shared == 1:
            yield verdict(
                GRADIENT_SPIKE,
                chart,
                Finding(message=f"{text}.", onset=spike.at, evidence=evidence),
            )
        elif self._shared == 2:
            yield verdict(
                OUTLIER_BATCH,
                chart,
                Finding(
                    message="For the second time a single batch stands out: "
                    f"{text[0].lower()}{text[1:]}.",
                    onset=spike.at,
                    confidence=0.8,
                    evidence=evidence,
                ),
            )

    def _lonely_spike(self, chart: Chart, spike: _Spike) -> Issue:
        return verdict(
            LOSS_SPIKE,
            chart,
            Finding(
                message=f"For the {'third' if self._alone == 3 else 'second'} time the loss "
                f"jumped and came back: {spike.loss:.4g} at step {spike.at.step}, "
                f"{spike.deviations:.3g} deviations above its level of {spike.level:.4g} (limit "
                f"{_LONELY_NOISES:g}).",
                onset=spike.at,
                confidence=0.8,
                evidence={"deviations": Quantity(value=spike.deviations, limit=_LONELY_NOISES)},
            ),
        )


def _described(spike: _Spike) -> str:
    return (
        f"At step {spike.at.step} the loss was {spike.loss:.4g}, {spike.deviations:.3g} "
        f"deviations above its level of {spike.level:.4g} (limit {_LOSS_NOISES:g}), and the "
        f"gradient norm {spike.gradient_ratio:.3g} times its median"
    )


def _evidence(spike: _Spike) -> dict[str, Evidence]:
    return {
        "deviations": Quantity(value=spike.deviations, limit=_LOSS_NOISES),
        "gradient_ratio": Quantity(value=spike.gradient_ratio, limit=_GRADIENT_RATIO),
        "level": spike.level,
        "loss": spike.loss,
        "start": spike.start,
    }


def _is_wild(chart: Chart, spike: _Spike) -> bool:
    return spike.loss > _WILD * max(chart.start_level, spike.level)


def _noise(chart: Chart, level: Level) -> float:
    return max(level.noise, 0.03 * abs(level.median), 0.01 * chart.progress, 1e-12)


def _limit(chart: Chart, level: Level) -> float:
    """Return the loss above which a row stands out; never below the highest of the level."""
    if chart.options.batch_size == 1 or not chart.judged:
        return math.inf
    above = max(_LOSS_NOISES * _noise(chart, level), 2.0 * (level.highest - level.median))
    return level.median + above


def _gradient_ratio(chart: Chart) -> float:
    """Return the gradient norm over its median if it stands out, else 0."""
    norm, before = chart.grad_norm, chart.recent_gradients(CALM_ROWS)
    if norm is None or not 0.0 < norm < math.inf or len(before) < CALM_ROWS:
        return 0.0
    logs = [math.log(value) for value in before]
    middle = median(logs)
    limit = max(_GRADIENT_NOISES * max(spread(logs, middle), 0.15), math.log(_GRADIENT_RATIO))
    jump = math.log(norm) - middle
    return math.exp(jump) if jump > limit else 0.0
