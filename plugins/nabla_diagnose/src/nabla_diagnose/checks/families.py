"""RUN501, RUN504 and RUN601 to RUN603: signals that only some programs have."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nabla_core.issue import Issue, Quantity
from nabla_core.rule import Rule

from ..calm import Calm
from ..chart import Chart, Moment
from ..robust import median, spread
from ..rules.families import GAN_IMBALANCE, POLICY_ENTROPY_COLLAPSE, POSTERIOR_COLLAPSE
from ..rules.samples import CLASS_IMBALANCE, DISTRIBUTION_SHIFT
from .check import Check, Finding, verdict

__all__ = ["FamiliesCheck"]

_LEAST_BLOCKS = 20
_START_ROWS = 10
_LOW_ROWS = {GAN_IMBALANCE.id: 60, POSTERIOR_COLLAPSE.id: 100, POLICY_ENTROPY_COLLAPSE.id: 100}
_SHARE = {GAN_IMBALANCE.id: 0.02, POSTERIOR_COLLAPSE.id: 0.01, POLICY_ENTROPY_COLLAPSE.id: 0.01}
_SIGNALS = {
    GAN_IMBALANCE.id: "d_loss",
    POSTERIOR_COLLAPSE.id: "kl",
    POLICY_ENTROPY_COLLAPSE.id: "entropy",
}
_RULES: dict[str, Rule] = {
    rule.id: rule for rule in (GAN_IMBALANCE, POSTERIOR_COLLAPSE, POLICY_ENTROPY_COLLAPSE)
}
_WANTED = frozenset({*_SIGNALS.values(), "input_std", "label_entropy", "reward"})
_REWARDS = 40
_EXPLORES = 0.5
_GAINED = 1.0
"""Deviations of single rewards by which a policy that was worth it became better."""
_SHIFT = 8.0
_SHIFT_ROWS = 20


class FamiliesCheck(Check):
    """Follows terms that must not vanish, and inputs that must not drift."""

    rules = (*_RULES.values(), DISTRIBUTION_SHIFT, CLASS_IMBALANCE)
    first_block = _LEAST_BLOCKS

    def __init__(self) -> None:
        self._highest: dict[str, list[float]] = {}
        self._low: dict[str, tuple[int, Moment]] = {}
        self._told: set[str] = set()
        self._inputs: list[float] = []
        self._shifted: tuple[int, Moment] = (0, Moment(0, 0))
        self._entropies: list[float] = []
        self._rewards: list[float] = []
        self._explored: list[float] = []
        self._widest = 0.0

    def row(self, chart: Chart) -> Iterable[Issue]:
        """See :class:`Check`."""
        return () if _WANTED.isdisjoint(chart.seen) else self._judge(chart)

    def narrow(self, chart: Chart, calm: Calm) -> bool:
        """See :class:`Check`."""
        return _WANTED.isdisjoint(chart.seen)

    def _judge(self, chart: Chart) -> Iterable[Issue]:
        signals = chart.signals
        for rule_id, name in _SIGNALS.items():
            value = signals.get(name)
            if value is not None and rule_id not in self._told:
                yield from self._vanishing(chart, rule_id, value)
        inputs = signals.get("input_std")
        if inputs is not None and DISTRIBUTION_SHIFT.id not in self._told:
            yield from self._shifting(chart, inputs)
        if "label_entropy" in signals and len(self._entropies) < 200:
            self._entropies.append(signals["label_entropy"])
        if "reward" in signals:
            self._reward(signals["reward"], signals.get("entropy", 0.0))

    def _reward(self, value: float, entropy: float) -> None:
        """Keep the latest rewards, and the first ones of a policy that still explores."""
        self._rewards = [*self._rewards[1 - _REWARDS :], value]
        self._widest = max(self._widest, entropy)
        if entropy > _EXPLORES * self._widest and len(self._explored) < _REWARDS:
            self._explored.append(value)

    def idle_until(self, chart: Chart) -> float:
        """See :class:`Check`."""
        return math.inf if len(self._entropies) < 100 else 0

    def block(self, chart: Chart) -> Iterable[Issue]:
        """Report a loss that rests at the entropy of the labels' frequencies."""
        if (
            len(self._entropies) < 100
            or CLASS_IMBALANCE.id in self._told
            or chart.block_count < _LEAST_BLOCKS
        ):
            return
        entropy, chance = median(self._entropies), chart.chance
        levels = chart.block_losses()[-10:]
        if chance is None or entropy > 0.5 * chance:
            return
        apart = max(abs(level - entropy) for level in levels) / max(entropy, 1e-12)
        if apart > 0.05:
            return
        self._told.add(CLASS_IMBALANCE.id)
        yield verdict(
            CLASS_IMBALANCE,
            chart,
            Finding(
                message=f"The loss rests within {apart:.2g} of the entropy of the labels' "
                f"frequencies, {entropy:.4g} (limit 0.05).",
                onset=Moment(0, 0),
                confidence=0.7,
                evidence={"distance": Quantity(value=apart, limit=0.05)},
            ),
        )

    def _vanishing(self, chart: Chart, rule_id: str, value: float) -> Iterable[Issue]:
        start = self._highest.setdefault(rule_id, [])
        if len(start) < _START_ROWS:
            start.append(value)
            return
        level = max(start) if rule_id != GAN_IMBALANCE.id else median(start)
        if value > max(start) and rule_id == POSTERIOR_COLLAPSE.id:
            start[-1] = value
        if not 0.0 <= value < _SHARE[rule_id] * level:
            self._rise(rule_id)
            return
        length, since = self._low.get(rule_id, (0, chart.now))
        self._low[rule_id] = (length + 1, since)
        if length + 1 < _LOW_ROWS[rule_id] or self._rewarded(rule_id):
            return
        self._told.add(rule_id)
        yield verdict(
            _RULES[rule_id],
            chart,
            Finding(
                message=f"{_SIGNALS[rule_id]} is at {value / level:.2g} of its start of "
                f"{level:.4g} (limit {_SHARE[rule_id]}), {length + 1} rows more than not from "
                f"step {since.step} on.",
                onset=since,
                confidence=0.8,
                evidence={"share": Quantity(value=value / level, limit=_SHARE[rule_id])},
            ),
        )

    def _rise(self, rule_id: str) -> None:
        """Take a row off the length of a low phase: it wanders, and some rows do not end it."""
        length, since = self._low.pop(rule_id, (0, Moment(0, 0)))
        if length > 1:
            self._low[rule_id] = (length - 1, since)

    def _rewarded(self, rule_id: str) -> bool:
        """Whether a policy found something before it stopped to explore: then it has solved it."""
        if rule_id != POLICY_ENTROPY_COLLAPSE.id:
            return False
        rewards = self._rewards
        if len(rewards) < _REWARDS or not self._explored:
            return True
        half, noise = len(rewards) // 2, spread(rewards)
        gained = median(rewards) > median(self._explored) + _GAINED * noise
        return gained or median(rewards[half:]) > median(rewards[:half]) + noise

    def _shifting(self, chart: Chart, value: float) -> Iterable[Issue]:
        window = self._inputs
        if len(window) < 40:
            window.append(value)
            return
        level = median(window)
        noise = max(spread(window, level), 0.01 * abs(level), 1e-12)
        if abs(value - level) <= _SHIFT * noise:
            window.pop(0)
            window.append(value)
            self._shifted = (0, chart.now)
            return
        length, since = self._shifted
        since = since if length else chart.now
        self._shifted = (length + 1, since)
        worse = median(chart.recent(10)) > median(chart.recent(60)[:30]) + 3.0 * chart.noise()
        if length + 1 < _SHIFT_ROWS or not worse:
            return
        self._told.add(DISTRIBUTION_SHIFT.id)
        yield verdict(
            DISTRIBUTION_SHIFT,
            chart,
            Finding(
                message=f"The spread of the inputs is {value:.4g} from step {since.step} on, "
                f"{abs(value - level) / noise:.3g} deviations from {level:.4g} (limit {_SHIFT:g}), "
                "and the loss rose with it.",
                onset=since,
                confidence=0.8,
                evidence={"deviations": Quantity(value=abs(value - level) / noise, limit=_SHIFT)},
            ),
        )
