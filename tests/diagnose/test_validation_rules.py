"""Rules that need a validation loss, and those about the data."""

import math
import random

import pytest


def validated(rows, values, every=20):
    """Put a validation loss into every ``every``-th row."""
    for place, value in enumerate(values):
        rows[place * every + every - 1]["val_loss"] = value
    return rows


def valley(low, slope, count, noise=0.0, seed=0):
    rng = random.Random(seed)
    return [
        low + max(0.0, 1.5 - 0.4 * place) + max(0.0, slope * (place - 4)) + noise * rng.gauss(0, 1)
        for place in range(count)
    ]


# ---------------------------------------------------------------- RUN108
def test_a_validation_loss_that_rises_from_its_minimum_overfits(judge, healthy):
    rows = validated(healthy(400, end=0.01, noise=0.005), valley(0.5, 0.06, 20))

    found = judge(rows)

    assert found.rules == ["RUN108"]
    assert found.one("RUN108").step == 99


@pytest.mark.parametrize("slope", [0.0, 0.005])
def test_a_flat_validation_loss_does_not(judge, healthy, slope):
    rows = validated(healthy(400, end=0.01, noise=0.005), valley(0.5, slope, 20))

    assert judge(rows).rules == []


def test_a_noisy_validation_loss_does_not(judge, healthy):
    for seed in range(8):
        values = valley(0.5, 0.01, 20, noise=0.15, seed=seed)
        rows = validated(healthy(400, end=0.01, noise=0.005), values)
        assert judge(rows).rules == []


def test_epochs_are_rows_as_well(judge):
    train = [0.7 * 0.88**epoch for epoch in range(16)]
    val = [0.69, 0.66, 0.6, 0.55, 0.53, 0.52, *(0.52 + 0.008 * k for k in range(1, 11))]
    rows = [{"loss": a, "val_loss": b} for a, b in zip(train, val, strict=True)]

    assert judge(rows).notes == ["RUN108"]


def test_a_metric_that_still_improves_makes_it_information(judge, healthy):
    rows = validated(healthy(400, end=0.01, noise=0.005), valley(0.5, 0.06, 20))
    for place in range(20):
        rows[place * 20 + 19]["val_accuracy"] = 0.8 + 0.005 * place

    found = judge(rows)

    assert found.rules == []
    assert "val_accuracy still improves" in found.one("RUN108").message


# ---------------------------------------------------------------- RUN110, RUN111
def test_a_validation_loss_that_never_moves_is_a_gap(judge, healthy):
    rng = random.Random(0)
    rows = validated(healthy(400), [2.0 + 0.03 * rng.gauss(0, 1) for _ in range(20)])

    assert judge(rows).rules == ["RUN110"]


def test_a_gap_that_closes_is_none(judge, healthy):
    rows = validated(healthy(400), [2.0 * 0.9**place for place in range(20)])

    assert judge(rows).rules == []


def test_a_validation_loss_equal_to_all_digits_is_frozen(judge, healthy):
    found = judge(validated(healthy(400), [1.9] * 20))

    assert found.rules == ["RUN111"]


def test_a_validation_loss_equal_to_some_digits_is_not(judge, healthy):
    values = [1.9 + 1e-3 * math.sin(place) for place in range(20)]

    assert "RUN111" not in judge(validated(healthy(400), values)).rules


def test_a_frozen_validation_of_a_run_that_stands_still_is_no_news(judge, healthy):
    rows = [{**row, "loss": 2.0} for row in healthy(400)]

    assert "RUN111" not in judge(validated(rows, [2.0] * 20)).rules


# ---------------------------------------------------------------- RUN506
def test_one_batch_over_and_over_is_reported(judge, healthy):
    rows = validated(
        healthy(200, end=0.0, noise=0.0, scale=20.0), [1.8 + 0.1 * k for k in range(10)]
    )
    for row in rows:
        row["grad_norm"] = 0.5 * row["loss"]  # of one batch: as calm as its loss

    assert judge(rows).rules[0] == "RUN506"


def test_the_whole_set_in_one_batch_is_right(judge, healthy):
    rows = validated(
        healthy(200, end=0.0, noise=0.0, scale=20.0),
        [2.1 * math.exp(-(20 * k + 19) / 20) for k in range(10)],
    )

    assert "RUN506" not in judge(rows).rules


def test_a_loss_with_noise_saw_several_batches(judge, healthy):
    rows = healthy(200, end=0.01, noise=0.02, scale=20.0)

    assert "RUN506" not in judge(validated(rows, [1.8] * 10)).rules


def test_at_the_end_of_a_schedule_the_validation_may_stand_still(judge, healthy):
    rows = validated(healthy(400, end=0.3), [2.0 - 0.1 * place for place in range(10)] + [1.0] * 10)
    for row in rows[200:]:
        row["update_ratio"] = 1e-5

    assert "RUN111" not in judge(rows).rules


@pytest.mark.parametrize(("slope", "expected"), [(0.02, []), (0.06, ["RUN108"])])
def test_a_rise_of_less_than_a_fifth_of_the_progress_is_none(judge, healthy, slope, expected):
    rows = validated(healthy(400, end=0.01, noise=0.005), valley(0.5, slope, 20))

    assert judge(rows).rules == expected


# ---------------------------------------------------------------- RUN503
def waves(height, period=40, rows=400, noise=0.05):
    """The same unequal stretches of data again and again, as of a sorted set."""
    rng = random.Random(0)
    source = random.Random(period)
    stretches = [source.random() for _ in range(period)]
    levels = [stretches[index - index % 4] for index in range(period)]
    return [
        {"loss": 1.0 + height * levels[row % period] + noise * rng.gauss(0, 1)}
        for row in range(rows)
    ]


def test_an_optimizer_that_rings_is_not_unshuffled(judge):
    rng = random.Random(0)
    rows = [
        {"loss": 1.0 + 0.5 * math.sin(2 * math.pi * row / 24) + 0.05 * rng.gauss(0, 1)}
        for row in range(400)
    ]

    assert "RUN503" not in judge(rows).rules


@pytest.mark.parametrize(("noise", "expected"), [(0.1, ["RUN503"]), (0.25, [])])
def test_waves_in_too_much_noise_are_none(judge, noise, expected):
    assert judge(waves(1.0, noise=noise)).rules == expected


def test_waves_of_a_fixed_period_are_reported(judge):
    found = judge(waves(1.0))

    assert found.rules == ["RUN503"]
    assert abs(found.one("RUN503").evidence["period"].value - 40) <= 1


def test_low_waves_are_noise(judge):
    assert judge(waves(0.03)).rules == []


def test_a_random_walk_has_no_period(judge):
    for seed in range(10):
        rng = random.Random(seed)
        level, rows = 5.0, []
        for _ in range(400):
            level += 0.05 * rng.gauss(0, 1)
            rows.append({"loss": level + 0.05 * rng.gauss(0, 1)})
        assert "RUN503" not in judge(rows).rules


# ---------------------------------------------------------------- RUN501, RUN504, RUN508
def with_inputs(healthy, spread, rise):
    rng = random.Random(0)
    rows = healthy(300)
    for index, row in enumerate(rows):
        shifted = index >= 200
        row["input_std"] = (spread if shifted else 1.0) + 0.01 * rng.gauss(0, 1)
        row["loss"] += rise if shifted else 0.0
    return rows


def test_inputs_that_shift_with_the_loss_are_reported(judge, healthy):
    found = judge(with_inputs(healthy, 3.0, 0.5))

    assert found.rules == ["RUN501"]
    assert found.one("RUN501").step == 200


@pytest.mark.parametrize(("spread", "rise"), [(1.05, 0.5), (3.0, 0.0)])
def test_a_shift_of_one_of_them_is_not(judge, healthy, spread, rise):
    assert judge(with_inputs(healthy, spread, rise)).rules == []


@pytest.mark.parametrize(("level", "expected"), [(0.06, ["RUN504"]), (0.04, [])])
def test_a_loss_at_the_entropy_of_the_labels_is_an_imbalance(judge, healthy, level, expected):
    rows = healthy(300, start=0.7, end=level, noise=1e-4, scale=10.0)
    for row in rows:
        row["label_entropy"] = 0.06

    assert judge(rows, hints={"loss": "cross_entropy", "classes": 2}).rules == expected


def test_losses_of_almost_nothing_are_noted(judge, healthy):
    rows = validated(healthy(200, end=1e-4, noise=0.0, scale=4.0), [1e-4] * 10)
    hints = {"loss": "cross_entropy", "classes": 4}

    assert "RUN508" in judge(rows, hints=hints).notes
    assert "RUN508" not in judge(validated(healthy(200), [0.3] * 10), hints=hints).notes


# ---------------------------------------------------------------- RUN601, RUN602, RUN603
@pytest.mark.parametrize(
    ("signal", "rule", "low", "rest"),
    [
        ("d_loss", "RUN601", 0.01, 0.03),
        ("kl", "RUN602", 0.005, 0.02),
        ("entropy", "RUN603", 0.005, 0.02),
    ],
)
def test_terms_that_vanish_are_reported(judge, healthy, signal, rule, low, rest):
    def rows(level):
        made = healthy(300)
        for index, row in enumerate(made):
            row[signal] = level if index > 120 else 1.0
            row["reward"] = 0.3
        return made

    assert judge(rows(low)).rules == [rule]
    assert judge(rows(rest)).rules == []


def test_a_policy_that_earns_more_may_be_sure(judge, healthy):
    rows = healthy(300)
    for index, row in enumerate(rows):
        row["entropy"] = 0.001 if index > 120 else 1.0
        row["reward"] = 0.01 * index

    assert judge(rows).rules == []


# ---------------------------------------------------------------- RUN901, RUN902
@pytest.mark.parametrize(("rows", "expected"), [(29, ["RUN901"]), (30, [])])
def test_a_short_run_is_no_evidence(judge, healthy, rows, expected):
    assert judge(healthy(rows)).notes == expected


def test_a_short_run_with_a_finding_needs_no_excuse(judge, healthy):
    rows = healthy(12)
    rows[-1]["loss"] = math.nan

    assert judge(rows).notes == []


@pytest.mark.parametrize(("restart", "expected"), [(120, ["RUN902"]), (None, [])])
def test_steps_that_start_again_are_noted(judge, healthy, restart, expected):
    assert judge(healthy(200), restart=restart).notes == expected
