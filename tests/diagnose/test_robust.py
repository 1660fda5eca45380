"""Statistics with known answers."""

import math
import random
import statistics

import pytest

from nabla_diagnose.robust import (
    autocorrelation,
    mann_kendall,
    median,
    roughness,
    spread,
    swift_autocorrelation,
)


def noise(count, seed=0):
    rng = random.Random(seed)
    return [rng.gauss(0.0, 1.0) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5, 8, 21])
def test_median_is_that_of_the_standard_library(count):
    values = noise(count)

    assert median(values) == statistics.median(values)


def test_spread_and_roughness_estimate_the_deviation_of_normal_noise():
    values = [3.0 * value for value in noise(4000)]

    assert spread(values) == pytest.approx(3.0, rel=0.1)
    assert roughness(values) == pytest.approx(3.0, rel=0.1)


def test_roughness_does_not_see_a_trend():
    values = noise(400)
    tilted = [value + 0.5 * place for place, value in enumerate(values)]

    assert roughness(tilted) == pytest.approx(roughness(values))
    assert spread(tilted) > 10 * spread(values)


def test_neither_sees_a_few_outliers():
    values = noise(400)
    spoilt = [1e9 if place % 50 == 0 else value for place, value in enumerate(values)]

    assert spread(spoilt) == pytest.approx(spread(values), rel=0.1)
    assert roughness(spoilt) == pytest.approx(roughness(values), rel=0.2)


def test_mann_kendall_of_known_sequences():
    assert mann_kendall(list(range(10))) == pytest.approx(44 / math.sqrt(125))
    assert mann_kendall(list(range(10))[::-1]) == pytest.approx(-44 / math.sqrt(125))
    assert mann_kendall([1.0] * 10) == 0.0
    assert mann_kendall([1.0]) == 0.0


def test_mann_kendall_of_noise_is_a_normal_deviate():
    scores = [mann_kendall(noise(30, seed)) for seed in range(200)]

    assert statistics.stdev(scores) == pytest.approx(1.0, abs=0.15)


def test_autocorrelation_finds_a_period():
    wave = [math.sin(2 * math.pi * place / 12) for place in range(120)]
    found = autocorrelation(wave, range(1, 40))

    assert max(found, key=found.get) in (12, 24, 36)
    assert found[6] == pytest.approx(-1.0, abs=0.05)
    assert autocorrelation([0.0] * 5, range(1, 3)) == {1: 0.0, 2: 0.0}


@pytest.mark.parametrize("count", [3, 160, 320, 1000])
@pytest.mark.parametrize("unit", [1e-140, 1.0, 1e140])
def test_swift_autocorrelation_is_near_the_true_one(count, unit):
    for values in (noise(count), [math.sin(place / 5) for place in range(count)]):
        scaled = [unit * value for value in values]
        true = autocorrelation(values, range(count // 2))

        found = swift_autocorrelation(scaled, count // 2)

        assert found == pytest.approx([true[lag] for lag in range(count // 2)], abs=0.02)


def test_swift_autocorrelation_holds_for_values_of_which_one_is_far_out():
    values = [1e6 if place % 40 == 7 else 0.01 * place for place in range(320)]
    true = autocorrelation(values, range(200))

    assert swift_autocorrelation(values, 200) == pytest.approx(list(true.values()), abs=0.02)


@pytest.mark.parametrize("values", [[0.0] * 20, [1e200] * 20, [1e-320] * 20])
def test_swift_autocorrelation_is_zero_where_it_cannot_be_known(values):
    assert swift_autocorrelation(values, 5) == [0.0] * 5
