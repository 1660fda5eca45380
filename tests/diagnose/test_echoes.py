"""A cheap look at whether a loss may repeat itself lets all pass that do."""

import math
import random

import pytest

from nabla_diagnose.checks.echoes import may_repeat
from nabla_diagnose.robust import autocorrelation, median, median_residuals


def levels_of(losses):
    return [median(losses[start : start + 10]) for start in range(0, len(losses), 10)]


def looks(losses):
    periods = range(10, len(losses) // 3)
    return may_repeat(losses, levels_of(losses), periods, limit=0.7, valley=0.1)


def repeating(rng, rows):
    """A loss whose epochs are alike, with a trend, noise, and sometimes rare high values."""
    period = rng.randrange(10, rows // 3)
    shape = rng.choice([lambda: rng.gauss(0, 1), lambda: 5.0 * (rng.random() < 0.1)])
    epoch = [shape() for _ in range(period)]
    noise, trend, time = (
        10 ** rng.uniform(-3, -0.2),
        rng.choice([0, 3, 30]),
        10 ** rng.uniform(1, 2),
    )
    return [
        epoch[row % period] + noise * rng.gauss(0, 1) + trend * math.exp(-row / time)
        for row in range(rows)
    ]


def repeats(losses):
    """Whether the exact correlations say so; a wave is another rule's."""
    periods = range(10, len(losses) // 3)
    found = autocorrelation(median_residuals(losses, 50), range(periods.stop))
    period = max(periods, key=lambda lag: found[lag])
    valley = min(found[lag] for lag in range(3, period))
    return found[period] >= 0.7 and -0.75 * found[period] <= valley <= 0.1


def test_a_loss_that_repeats_itself_is_never_passed_by():
    rng = random.Random(3)
    seen = 0
    for _ in range(60):
        losses = repeating(rng, rng.choice([160, 240, 320]))
        if repeats(losses):
            seen += 1
            assert looks(losses)
    assert seen > 20


@pytest.mark.parametrize("trend", [0.0, 1.0, 30.0])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_loss_that_falls_is_passed_by(trend, noise):
    rng = random.Random(1)
    losses = [1.0 + trend * math.exp(-row / 60) + noise * rng.gauss(0.0, 1.0) for row in range(320)]

    assert not looks(losses)
