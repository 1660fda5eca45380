"""A cheap look at whether a loss may repeat itself lets all pass that do."""

import math
import random

import pytest

from nabla_diagnose.checks.echoes import changes_may_repeat, may_repeat
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


def test_changes_that_come_back_are_never_passed_by_and_noise_is():
    rng = random.Random(5)
    seen = 0
    for _ in range(60):
        raw = repeating(rng, rng.choice([160, 240, 320]))
        losses = [sum(raw[max(0, row - 2) : row + 1]) / 3 for row in range(len(raw))]
        periods = range(10, len(losses) // 3)
        rests = median_residuals(losses, 50)
        changes = [after - before for before, after in zip(rests, rests[1:], strict=False)]
        if max(autocorrelation(changes, periods).values()) >= 0.6 and repeats(losses):
            seen += 1
            assert changes_may_repeat(losses, periods, 0.6)
        noise = [math.exp(-row / 60) + rng.gauss(0, 0.05) for row in range(len(raw))]
        assert not changes_may_repeat(noise, periods, 0.6)
    assert seen > 20
