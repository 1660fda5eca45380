"""Rules about the loss alone: faulty, healthy, and just below the limit."""

import math
import random

import pytest


def with_loss(rows, losses):
    return [{**row, "loss": loss} for row, loss in zip(rows, losses, strict=True)]


def test_a_healthy_run_is_not_reported(judge, healthy, sound_layers):
    for seed in range(10):
        assert judge(healthy(seed=seed), layers=sound_layers).issues == []


# ---------------------------------------------------------------- RUN101, RUN102
def test_the_first_bad_loss_is_reported_once(judge, healthy):
    rows = healthy(200)
    for row in rows[120:]:
        row["loss"] = math.nan

    found = judge(rows)

    assert found.rules == ["RUN101"]
    assert found.one("RUN101").step == 120


def test_a_loss_that_was_not_logged_is_no_nan(judge, healthy):
    rows = healthy(200)
    for row in rows[50:60]:
        row["loss"] = None

    assert judge(rows).issues == []


def test_a_nan_gradient_before_the_loss_is_the_origin(judge, healthy):
    rows = healthy(200)
    rows[100]["grad_norm"] = math.nan
    for row in rows[101:]:
        row["loss"] = row["grad_norm"] = math.nan

    found = judge(rows)

    assert found.rules == ["RUN102", "RUN101"]
    assert [issue.step for issue in found.issues] == [100, 101]


@pytest.mark.parametrize(("skipped", "expected"), [(24, []), (25, ["RUN102"])])
def test_a_scaler_may_search_its_scale(judge, healthy, skipped, expected):
    rows = healthy(200)
    for row in rows[:skipped]:
        row["grad_norm"] = math.inf

    assert judge(rows).rules == expected


@pytest.mark.parametrize("name", ["loss/kl", "val_loss", "test_loss/aux", "d_loss"])
@pytest.mark.parametrize(("times", "expected"), [(2, []), (3, ["RUN101"])])
def test_other_losses_are_followed_too(judge, healthy, name, times, expected):
    rows = healthy(200)
    for index, row in enumerate(rows):
        row[name] = math.nan if 120 <= index < 120 + times else row["loss"] + 0.1

    found = judge(rows)

    assert found.rules == expected
    assert not expected or (found.one("RUN101").step, found.one("RUN101").evidence["signal"]) == (
        120, name,
    )  # fmt: skip


def test_a_loss_that_never_was_a_number_is_not_logged_rather(judge, healthy):
    rows = healthy(200)
    for row in rows:
        row["loss/aux"] = math.nan

    assert judge(rows).issues == []


def test_players_without_a_common_loss_are_followed(judge, falling):
    rows = [{"d_loss": loss, "g_loss": 2.0 - loss} for loss in falling(200)]
    for row in rows[150:]:
        row["g_loss"] = math.nan

    assert judge(rows).rules == ["RUN101"]
    assert judge(rows[:150]).rules == []


# ---------------------------------------------------------------- RUN103
def spiky(rows, height, at):
    for index in at:
        rows[index]["loss"] = height
        rows[index]["grad_norm"] = 1.0
    return rows


def test_the_third_lonely_spike_is_reported(judge, healthy):
    rows = spiky(healthy(400), 3.0, (150, 200, 250))

    found = judge(rows)

    assert found.rules == ["RUN103"]
    assert found.one("RUN103").step == 250


def test_two_spikes_are_none(judge, healthy):
    assert judge(spiky(healthy(400), 3.0, (150, 200))).rules == []


@pytest.mark.parametrize(("height", "expected"), [(1.1, []), (1.5, ["RUN103"])])
def test_lonely_spikes_stand_far_out(judge, healthy, height, expected):
    rows = healthy(400, noise=0.04, start=1.2)

    assert judge(spiky(rows, height, (250, 300, 350))).rules == expected


def test_one_hard_sample_of_a_solved_task_is_no_spike(judge, healthy):
    rows = healthy(400, end=0.01, noise=0.001, scale=30.0)
    rows[300].update(loss=0.3, grad_norm=30.0)
    solved = judge(rows).rules
    rows[300].update(loss=1.9)

    assert solved == []
    assert judge(rows).rules == ["RUN301"]


def test_low_spikes_are_none(judge, healthy):
    assert judge(spiky(healthy(400), 0.8, (150, 200, 250))).rules == []


# ---------------------------------------------------------------- RUN104
def shifted(rows, by, start=200):
    return [
        {**row, "loss": row["loss"] + by if index >= start else row["loss"]}
        for index, row in enumerate(rows)
    ]


def test_a_loss_back_at_its_start_is_a_level_shift(judge, healthy):
    found = judge(shifted(healthy(400), 1.7))

    assert found.rules == ["RUN104"]
    assert found.one("RUN104").step == 200


def test_a_step_of_a_curriculum_is_none(judge, healthy):
    assert judge(shifted(healthy(400), 0.25)).rules == []


def test_a_smaller_shift_than_the_noise_is_none(judge, healthy):
    rows = shifted(healthy(400, noise=0.4, start=1.0), 0.3)

    assert judge(rows).rules == []


def test_a_shift_right_after_the_steps_start_again_is_another_run(judge, healthy):
    rows = [*healthy(200), *healthy(100, seed=5)]

    assert judge(rows).rules == ["RUN104"]
    assert judge(rows, restart=200).rules == []
    assert judge(rows, restart=200).notes == ["RUN902"]


# ---------------------------------------------------------------- RUN105
def rising(rows, factor):
    losses = [2.0 if index < 100 else 2.0 + factor for index in range(rows)]
    return [{"loss": loss + 0.02 * math.sin(index)} for index, loss in enumerate(losses)]


def test_a_loss_far_above_its_start_diverged(judge):
    found = judge(rising(300, 4.0))

    assert "RUN105" in [issue.rule for issue in found.issues]


def test_a_loss_that_does_not_double_has_not_diverged(judge):
    found = judge(rising(300, 1.9))

    assert "RUN105" not in [issue.rule for issue in found.issues]


@pytest.mark.parametrize("signal", ["d_loss", "reward", "kl"])
def test_losses_of_adversaries_and_policies_may_rise(judge, signal):
    rows = [{**row, signal: 0.7} for row in rising(300, 4.0)]

    assert judge(rows).rules == []


def test_losses_declared_custom_may_rise(judge):
    assert judge(rising(300, 4.0), hints={"loss": "custom"}).rules == []


# ---------------------------------------------------------------- RUN106
def swinging(rows, growth):
    rng = random.Random(0)
    return [
        {"loss": 1.0 + 0.01 * growth ** (row / rows) * (-1) ** row + 1e-4 * rng.gauss(0, 1)}
        for row in range(rows)
    ]


def test_growing_swings_are_reported(judge):
    assert "RUN106" in judge(swinging(160, 30.0)).rules


def test_steady_swings_are_not(judge):
    assert "RUN106" not in judge(swinging(160, 2.0)).rules


def test_growing_noise_does_not_swing(judge):
    rng = random.Random(3)
    rows = [{"loss": 5.0 + 0.01 * 30.0 ** (row / 160) * rng.gauss(0, 1)} for row in range(160)]

    assert "RUN106" not in judge(rows).rules


# ---------------------------------------------------------------- RUN109
def climbing(healthy, rate, update=3e-3):
    rows = healthy(200)
    losses = [2.0 * math.exp(rate * index) + 0.01 * math.sin(7 * index) for index in range(200)]
    return [{**row, "update_ratio": update} for row in with_loss(rows, losses)]


def test_a_loss_that_climbs_with_small_steps_has_the_wrong_sign(judge, healthy):
    found = judge(climbing(healthy, 0.004))

    assert found.rules[0] == "RUN109"
    assert "RUN105" not in found.rules  # that follows from it


def turned(falling, first):
    return [{"loss": first - 0.02 * row + 0.01 * loss} for row, loss in enumerate(falling(60))]


@pytest.mark.parametrize(("first", "expected"), [(-1.13, ["RUN109"]), (-0.9, [])])
def test_a_declared_cross_entropy_below_zero_has_the_wrong_sign(judge, falling, first, expected):
    hints = {"loss": "cross_entropy", "classes": 8}  # guessing: 2.08

    assert judge(turned(falling, first), hints).rules == expected


@pytest.mark.parametrize("hints", [{}, {"loss": "custom", "classes": 8}])
def test_other_losses_may_be_below_zero(judge, falling, hints):
    assert judge(turned(falling, -3.0), hints).rules == []


def test_a_cross_entropy_that_a_bonus_takes_below_zero_later_keeps_its_sign(judge, falling):
    rows = [{"loss": loss - 0.1 * row} for row, loss in enumerate(falling(60))]

    assert "RUN109" not in judge(rows, {"loss": "cross_entropy", "classes": 8}).rules


def test_a_flat_loss_has_no_wrong_sign(judge, healthy):
    assert "RUN109" not in judge(climbing(healthy, 0.0)).rules


def test_other_data_from_one_row_to_the_next_are_no_wrong_sign(judge, healthy):
    rows = healthy(200, start=1.0, end=0.9, noise=0.02)
    for index, row in enumerate(rows):
        row["loss"] += 0.002 * index + (3.0 if index >= 60 else 0.0)

    assert "RUN109" not in judge(rows).rules


def test_large_steps_are_another_fault(judge, healthy):
    assert "RUN109" not in judge(climbing(healthy, 0.01, update=0.5)).rules


# ---------------------------------------------------------------- RUN107, RUN507
def guessing(healthy, gap=0.0, update=4e-3, rows=300):
    rng = random.Random(2)
    losses = [math.log(8) * (1 + gap) + 0.01 * rng.gauss(0, 1) for _ in range(rows)]
    return [{**row, "update_ratio": update} for row in with_loss(healthy(rows), losses)]


CLASSES = {"loss": "cross_entropy", "classes": 8}


def test_a_loss_that_stays_at_guessing_is_reported(judge, healthy):
    found = judge(guessing(healthy), hints=CLASSES)

    assert found.rules == ["RUN107"]
    assert "RUN507" in found.notes


def test_a_plateau_below_guessing_is_none(judge, healthy):
    assert judge(guessing(healthy, gap=-0.06), hints=CLASSES).rules == []


def test_a_plateau_of_a_model_that_did_not_move_is_another_fault(judge, healthy):
    assert judge(guessing(healthy, update=2e-4), hints=CLASSES).rules == []


def test_a_run_without_a_trend_is_said_to_have_none(judge, healthy):
    found = judge(guessing(healthy))

    assert found.rules == []
    assert found.notes == ["RUN107"]


def test_a_fine_tuning_with_a_trend_is_not_reported(judge, healthy):
    assert judge(healthy(300, start=0.6, end=0.5, noise=0.01)).issues == []


# ---------------------------------------------------------------- RUN112
def resting(height):
    floor = math.log(math.e + 7) - 1.0
    rng = random.Random(0)
    start = math.log(8)
    level = floor + height * (start - floor)
    return [
        {"loss": level + (start - level) * math.exp(-row / 30) + abs(0.003 * rng.gauss(0, 1))}
        for row in range(300)
    ]


def test_a_loss_on_the_floor_of_a_second_softmax_is_reported(judge):
    assert judge(resting(0.0), hints=CLASSES).rules == ["RUN112"]


@pytest.mark.parametrize("height", [0.05, -0.2])
def test_a_loss_above_or_below_that_floor_is_not(judge, height):
    assert judge(resting(height), hints=CLASSES).rules == []


# ---------------------------------------------------------------- properties
@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_verdicts_do_not_depend_on_the_unit_of_the_loss(judge, healthy, unit):
    for rows in (healthy(300), shifted(healthy(400), 1.7), rising(300, 4.0), swinging(160, 30.0)):
        scaled = [{**row, "loss": unit * row["loss"]} for row in rows]
        assert judge(scaled).rules == judge(rows).rules


def test_verdicts_do_not_depend_on_the_first_step_or_the_period(judge, healthy):
    rows = shifted(healthy(400), 1.7)

    assert judge(rows, first_step=10_000, stride=5).rules == judge(rows).rules
