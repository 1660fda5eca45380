"""RUN108, RUN110, RUN111, RUN506 and RUN508: what the validation loss says beside the training
loss."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from nabla_core.issue import Issue, Quantity
from nabla_core.rule import Rule
from nabla_core.severity import Severity

from ..chart import Chart, Moment
from ..robust import mann_kendall, median, roughness
from ..rules.samples import REPEATED_BATCH, TOO_GOOD
from ..rules.trend import OVERFITTING, TRAIN_VAL_GAP, VALIDATION_FROZEN
from .check import Check, Finding, verdict
from .metrics import MetricBook
from .overfitting import Rise, measure_rise, wandering

__all__ = ["ValidationCheck"]

_KEPT = 80
_FROZEN = 1e-6
_MOVED = 0.01
"""Share of the parameters' size that steps must have covered between equal evaluations."""
_VISIBLE = 20.0
"""Last digits of the logged values that a change must be worth."""
_OF_ONE_BATCH = 0.15
"""Noise of the logarithm of the norm of one batch's gradient."""
_FALLS = 2.5
"""Trend of evaluations that fall all the way."""
_NOISES = 3.0
_COMPARED = 3.0
"""Times the first training losses above which every evaluation is of another quantity: a sum, or a
contrastive loss of larger batches."""
_DRIFT = 1.05
"""Times the least evaluation below which evaluations are level, whatever their trend."""


@dataclass(frozen=True, slots=True)
class _Evaluation:
    value: float
    train: float
    at: Moment
    moved: float


class ValidationCheck(Check):
    """Keeps the latest evaluations, and the best one for good."""

    rules = (OVERFITTING, TRAIN_VAL_GAP, VALIDATION_FROZEN, REPEATED_BATCH, TOO_GOOD)

    def __init__(self) -> None:
        self._kept: deque[_Evaluation] = deque(maxlen=_KEPT)
        self._first: _Evaluation | None = None
        self._best: _Evaluation | None = None
        self._count = 0
        self._since_best = 0
        self._last_row = -1
        self._rise: Rise | None = None
        self._told: set[str] = set()
        self._metrics = MetricBook()

    def validation(self, chart: Chart, value: float) -> Iterable[Issue]:
        """See :class:`Check`."""
        if not math.isfinite(value) or not chart.losses:
            return
        # the losses since the last evaluation: one row of a log by epochs, many of one by steps
        rows = min(10, max(1, chart.now.row - self._last_row))
        self._last_row = chart.now.row
        latest = _Evaluation(value, median(chart.recent(rows)), chart.now, chart.distance)
        self._take(latest)
        self._metrics.note(chart.signals)
        if self._count < 2:
            return
        if rows > 1:  # rows of a log by epochs are as smooth as those of one batch
            yield from self._repeated(chart, latest)
        if self._count < 4:
            return
        yield from self._frozen(chart, latest)
        self._rise = self._risen(chart, latest, rows)
        yield from self._overfits(chart)
        yield from self._gap(chart, latest)
        yield from self._too_good(chart, latest)

    def _take(self, latest: _Evaluation) -> None:
        self._kept.append(latest)
        self._count += 1
        self._since_best += 1
        self._first = self._first or latest
        if self._best is None or latest.value < self._best.value:
            self._best, self._since_best = latest, 0

    def _once(self, rule: Rule) -> bool:
        if rule.id in self._told:
            return False
        self._told.add(rule.id)
        return True

    def _start(self, chart: Chart) -> float:
        return max(chart.start_level, self._first.train if self._first else 0.0)

    # ------------------------------------------------------------------ the rules
    def _frozen(self, chart: Chart, latest: _Evaluation) -> Iterable[Issue]:
        level = abs(latest.value)
        if level <= 0.0 or abs(latest.value - self._kept[-2].value) > _FROZEN * level:
            return
        then = self._kept[-4]
        values = [entry.value for entry in list(self._kept)[-4:]]
        if max(values) - min(values) > _FROZEN * level:
            return
        start = self._start(chart)
        fell = start - latest.train > 0.05 * abs(start)
        far = latest.value > 0.5 * start
        if not (fell and far and self._moves(chart, then, latest)) or not self._once(
            VALIDATION_FROZEN
        ):
            return
        yield verdict(
            VALIDATION_FROZEN,
            chart,
            Finding(
                message=f"The validation loss is {latest.value:.6g} in four evaluations in a row "
                f"from step {then.at.step} on, to within {_FROZEN:g}, while the training loss fell "
                f"from {start:.4g} to {latest.train:.4g}.",
                onset=self._kept[0].at if self._count <= 6 else then.at,
                confidence=0.95,
                evidence={
                    "range": Quantity(value=max(values) - min(values), limit=_FROZEN * level),
                    "val_loss": latest.value,
                    "train_loss": latest.train,
                },
            ),
        )

    def _moves(self, chart: Chart, then: _Evaluation, latest: _Evaluation) -> bool:
        """Whether the run moved so far between two evaluations that equal values are odd.

        The parameters did, where updates are logged, and the training loss did, beyond its noise:
        at the end of a schedule nothing moves, and nothing is wrong. A change like that of the
        training loss must have been visible in the digits that the log keeps.
        """
        values = [entry.value for entry in self._kept]
        since = then
        if self._first is not None and self._first.value == latest.value:
            since = self._first
            values += chart.recent(20)  # of one value, 2.0, the digits cannot be told
        fell = since.train - latest.train
        noise = wandering([entry.train for entry in list(self._kept)[-20:]])
        if fell <= max(_VISIBLE * _resolution(values), _NOISES * noise):
            return False
        if "update_ratio" in chart.seen:
            return latest.moved - then.moved > _MOVED
        return fell > 0.05 * abs(self._start(chart))

    def finish(self, chart: Chart) -> Iterable[Issue]:
        """Note a rise that lasts to the end and is too small for an alarm."""
        if self._rise is not None and self._once(OVERFITTING):
            chart.found.add(OVERFITTING.id)  # the checks that finish later ask for it
            yield self._overfitting(chart, self._rise, is_alarm=False)

    def _risen(self, chart: Chart, latest: _Evaluation, rows: int) -> Rise | None:
        """Return how far the validation loss rose while the training loss fell."""
        best = self._best
        if best is None or self._since_best < 4 or OVERFITTING.id in self._told:
            return None
        start = self._start(chart)
        sure = max(0.02 * abs(best.train), 2.5 * chart.noise() / rows**0.5)
        if latest.train >= min(best.train - sure, start) or not chart.judged:
            return None
        place = next(i for i, entry in enumerate(self._kept) if entry.at.row >= best.at.row)
        return measure_rise([entry.value for entry in self._kept], place, start)

    def _overfits(self, chart: Chart) -> Iterable[Issue]:
        rise = self._rise
        if rise is None or rise.size <= rise.alarmed or not self._once(OVERFITTING):
            return
        yield self._overfitting(chart, rise, is_alarm=True)

    def _overfitting(self, chart: Chart, rise: Rise, *, is_alarm: bool) -> Issue:
        best, latest = self._best or self._kept[-1], self._kept[-1]
        metric, limit = self._metrics.still_improving(), rise.alarmed if is_alarm else rise.noted
        note = f"; {metric} still improves" if metric else ""
        return verdict(
            OVERFITTING,
            chart,
            Finding(
                message=f"The validation loss rose by {rise.size:.4g} from its minimum of "
                f"{best.value:.4g} at step {best.at.step} (limit {limit:.3g}) while the training "
                f"loss fell from {best.train:.4g} to {latest.train:.4g}{note}.",
                onset=best.at,
                severity=None if is_alarm and not metric else Severity.INFO,
                evidence={
                    "rise": Quantity(value=rise.size, limit=limit),
                    "best_step": best.at.step,
                    "best_val_loss": best.value,
                    "evaluations_since": self._since_best,
                },
            ),
        )

    def _gap(self, chart: Chart, latest: _Evaluation) -> Iterable[Issue]:
        start = self._start(chart)
        if self._count < 8 or start <= 0.0 or not chart.judged or self._best is None:
            return
        if latest.train > 0.5 * start or not 0.85 * start < self._best.value <= _COMPARED * start:
            return
        last = list(self._kept)[-4:]
        apart = all(entry.value > 2.0 * entry.train for entry in last)
        values = [entry.value for entry in self._kept]
        if not apart or not _is_flat(values):
            return
        if chart.found & {"RUN506", "RUN111", "RUN108"} or not self._once(TRAIN_VAL_GAP):
            return
        yield verdict(
            TRAIN_VAL_GAP,
            chart,
            Finding(
                message=f"The validation loss never fell below {self._best.value:.4g} in "
                f"{self._count} evaluations (limit {0.85 * start:.4g}) while the training loss "
                f"fell from {start:.4g} to {latest.train:.4g}.",
                onset=self._first.at if self._first else latest.at,
                confidence=0.8,
                evidence={
                    "best_val_loss": Quantity(value=self._best.value, limit=0.85 * start),
                    "train_loss": latest.train,
                },
            ),
        )

    def _repeated(self, chart: Chart, latest: _Evaluation) -> Iterable[Issue]:
        if REPEATED_BATCH.id in self._told or not chart.judged or chart.rows > 400:
            return
        start = self._start(chart)
        apart = latest.value > 3.0 * latest.train and latest.train < 0.6 * start
        if not apart or self._best is None:
            return
        stuck = self._best.value > 0.6 * start or latest.value > 10.0 * latest.train
        rows = chart.recent(30)
        if not stuck or len(rows) < 20 or min(rows) <= 0.0:
            return
        smooth = roughness([math.log(value) for value in rows])
        falling = sum(b < a for a, b in zip(rows, rows[1:], strict=False)) / (len(rows) - 1)
        if smooth > 0.03 or falling < 0.9 or _gradients_vary(chart):
            return
        self._once(REPEATED_BATCH)
        yield verdict(
            REPEATED_BATCH,
            chart,
            Finding(
                message=f"The training loss fell in {falling:.0%} of the last {len(rows)} rows "
                f"with a noise of {smooth:.2g} (limit 0.03) to {latest.train:.4g}, while the "
                f"validation loss stands at {latest.value:.4g}.",
                onset=Moment(0, chart.blocks[0].start.step if chart.blocks else 0),
                evidence={
                    "noise": Quantity(value=smooth, limit=0.03),
                    "val_loss": latest.value,
                    "train_loss": latest.train,
                },
            ),
        )

    def _too_good(self, chart: Chart, latest: _Evaluation) -> Iterable[Issue]:
        chance = chart.chance
        if chance is None or self._count > 6 or max(latest.value, latest.train) > 0.002 * chance:
            return
        if self._once(TOO_GOOD):
            yield verdict(
                TOO_GOOD,
                chart,
                Finding(
                    message=f"Training and validation loss are at {latest.train:.2g} and "
                    f"{latest.value:.2g} after {self._count} evaluations (limit "
                    f"{0.002 * chance:.2g}).",
                    onset=latest.at,
                    confidence=0.5,
                    evidence={"val_loss": Quantity(value=latest.value, limit=0.002 * chance)},
                ),
            )


def _gradients_vary(chart: Chart) -> bool:
    """Whether the gradient norm shows other batches behind a loss that is logged as an average."""
    norms = list(chart.gradients)[-30:]
    return len(norms) >= 20 and roughness([math.log(norm) for norm in norms]) > _OF_ONE_BATCH


def _is_flat(values: list[float]) -> bool:
    """Whether evaluations go nowhere; the first one, of a model that is new, does not count.

    Some fall all the way and still lie above the training loss, which is measured otherwise: by
    other batches of a contrastive loss, or by a sum.
    """
    later = values[1:]
    half = len(later) // 2
    if mann_kendall(later) < -_FALLS:
        return False
    if 0.0 < max(later) < _DRIFT * min(later):
        return True
    level = median(later[half:]) < 1.15 * median(later[:half])
    return level and mann_kendall(later) < 1.5 and mann_kendall(later[half:]) < 1.5


def _resolution(values: list[float]) -> float:
    """Return the unit of the last decimal place that any of the values uses."""
    return min(map(_last_place, values))


def _last_place(value: float) -> float:
    digits, _, exponent = repr(value).partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
