"""What noisy runs lose, what only looks like a loss, and which of several findings comes first."""

import math
import random

import pytest

from nabla_diagnose.ranking import rank
from nabla_diagnose.rules.gradients import GRADIENT_SPIKE
from nabla_diagnose.rules.level import DIVERGENCE, LOSS_LEVEL_SHIFT

CLASSES = {"loss": "cross_entropy", "classes": 5}


def noisy(rows, level, noise, **columns):
    """A loss at ``level(row)`` with noise in proportion, and columns that depend on a row."""
    rng = random.Random(4)
    return [
        {
            "loss": level(row) * (1.0 + noise * rng.gauss(0.0, 1.0)),
            **{name: column(row) for name, column in columns.items()},
        }
        for row in range(rows)
    ]


def evaluated(rows, value, every=20):
    return [
        {**row, "val_loss": value(place)} if place % every == every - 1 else row
        for place, row in enumerate(rows)
    ]


# ---------------------------------------------------------------- RUN104: forty rows
def relearnt(back):
    """A loss that falls by half in 260 rows, is set back to ``back`` and falls again."""

    def level(row):
        return 1.5 - 0.6 * min(row, 260) / 260 if row < 260 else back - 0.5 * (row - 260) / 240

    return level


@pytest.mark.parametrize(("back", "expected"), [(1.5, ["RUN104"]), (1.15, [])])
def test_a_setback_in_a_noisy_run_is_a_level_shift(judge, back, expected):
    found = judge(noisy(500, relearnt(back), 0.15))

    assert found.rules == expected


# ---------------------------------------------------------------- RUN104: what the validation says
def harder(row):
    return 0.5 + 1.5 * math.exp(-row / 40) + (1.3 if row >= 200 else 0.0)


def test_a_harder_task_whose_validation_goes_on_falling_is_information(judge):
    rows = evaluated(noisy(400, harder, 0.05), lambda row: 1.2 - 0.001 * row)

    found = judge(rows)

    assert found.rules == []
    assert "validation loss did not follow" in found.one("RUN104").message


@pytest.mark.parametrize("lasts", [40, 200])
def test_a_rise_that_the_validation_shares_is_told_at_its_first_evaluation(judge, lasts):
    def broken(row):
        return 1.2 - 0.001 * row + (0.4 if 200 <= row < 200 + lasts else 0.0)

    found = judge(evaluated(noisy(400, harder, 0.05), broken))

    assert found.rules == ["RUN104"]
    assert found.one("RUN104").step == 200


def test_a_rise_is_told_when_no_evaluation_follows(judge):
    rows = evaluated(noisy(400, harder, 0.05), lambda row: 1.2 - 0.001 * row)
    rows[200:] = [{"loss": row["loss"]} for row in rows[200:]]

    assert judge(rows).rules == ["RUN104"]


@pytest.mark.parametrize(("gradient", "expected"), [(0.6, []), (1.1, ["RUN104"])])
def test_a_larger_contrastive_batch_lowers_the_gradient(judge, gradient, expected):
    rows = noisy(
        400,
        lambda row: 1.6 + 0.3 * math.exp(-row / 40) + (1.3 if row >= 200 else 0.0),
        0.01,
        grad_norm=lambda row: gradient if row >= 200 else 1.0,
    )

    assert judge(rows).rules == expected


# ---------------------------------------------------------------- RUN105: on the way to infinity
def blown_up(rows, doubles):
    level = [1.0 * math.exp(-row / 40) + 0.2 for row in range(100)]
    level += [3.0 * 10.0**row for row in range(doubles)]
    rng = random.Random(1)
    return [{"loss": one * (1 + 0.05 * rng.gauss(0, 1))} for one in level] + [
        {"loss": math.nan}
    ] * rows


@pytest.mark.parametrize(("rows", "expected"), [(5, ["RUN105", "RUN101"]), (2, ["RUN101"])])
def test_a_loss_that_runs_away_has_diverged_before_it_was_nan(judge, rows, expected):
    found = judge(blown_up(4, rows))

    assert [issue.rule for issue in rank(found.issues)] == expected


@pytest.mark.parametrize(("gradient", "first"), [(400.0, "RUN301"), (30.0, "RUN105")])
def test_one_batch_after_which_all_is_lost_comes_first(judge, gradient, first):
    rows = [{**row, "grad_norm": 1.0} for row in blown_up(3, 0)]
    calm, broken = rows[:100], rows[100:]
    after = [{"loss": 500.0 * 10.0**row, "grad_norm": gradient} for row in range(5)]

    assert rank(judge([*calm, *after, *broken]).issues)[0].rule == first


# ---------------------------------------------------------------- RUN102: a step with it
@pytest.mark.parametrize(("update", "expected"), [(3e-3, ["RUN102"]), (0.0, [])])
def test_a_step_with_an_infinite_gradient_is_no_skipped_one(judge, healthy, update, expected):
    rows = healthy(200)
    rows[90] |= {"grad_norm": math.inf, "update_ratio": update}

    assert judge(rows).rules == expected


def test_rows_of_several_steps_do_not_tell_which_was_skipped(judge, healthy):
    rows = healthy(200)
    rows[90] |= {"grad_norm": math.inf}

    assert judge(rows, stride=5).rules == []


# ---------------------------------------------------------------- RUN503: few batches
def in_turn(batches, noise):
    rng = random.Random(2)
    hardness = [1.0, 1.4, 0.8, 1.2][:batches]
    return [
        {"loss": hardness[row % batches] * math.exp(-row / 80) * (1 + noise * rng.gauss(0, 1))}
        for row in range(200)
    ]


@pytest.mark.parametrize("batches", [2, 3, 4])
def test_the_same_few_batches_in_turn_are_unshuffled(judge, batches):
    assert judge(in_turn(batches, 0.001)).rules == ["RUN503"]


def test_tasks_in_turn_with_their_own_noise_are_not(judge):
    assert judge(in_turn(2, 0.05)).rules == []


@pytest.mark.parametrize(("noise", "expected"), [(0.004, ["RUN503"]), (0.0, [])])
def test_easy_and_hard_halves_are_not_the_swing_of_an_optimizer(judge, noise, expected):
    """Batches differ within their half; a ringing optimizer swings smoothly."""
    rng = random.Random(3)
    own = [rng.gauss(0.0, 0.08) if noise else 0.0 for _ in range(40)]

    def level(row):
        half = math.copysign(1.0, math.sin(2 * math.pi * (row + 0.5) / 40))
        swing = half if noise else math.sin(2 * math.pi * row / 40)
        return 1.8 - 0.0005 * row + 0.2 * swing + own[row % 40]

    assert judge(noisy(480, level, noise)).rules == expected


# ---------------------------------------------------------------- RUN107: never below guessing
@pytest.mark.parametrize(("share", "expected"), [(1.12, ["RUN107"]), (0.95, [])])
def test_a_run_that_is_never_below_guessing_has_learnt_nothing(judge, share, expected):
    rows = noisy(
        400, lambda row: share * math.log(5) + 1e-4 * row, 0.02, update_ratio=lambda row: 0.01
    )

    assert judge(rows, hints=CLASSES).rules == expected


# ---------------------------------------------------------------- RUN302: seven layers
@pytest.mark.parametrize(
    ("layers", "each", "expected"), [(9, 2.8, ["RUN302"]), (9, 2.2, []), (5, 7.0, [])]
)
def test_a_gradient_that_shrinks_in_every_layer_vanishes(judge, healthy, layers, each, expected):
    names = [f"blocks.{place}" for place in range(layers)]

    def table(index):
        return {
            "grad_norm": {name: each ** (place - layers) for place, name in enumerate(names)},
            "weight_norm": dict.fromkeys(names, 2.0),
            "update_ratio": dict.fromkeys(names, 1e-3),
        }

    assert judge(healthy(100), layers=table).rules == expected


# ---------------------------------------------------------------- RUN201: which layer
@pytest.mark.parametrize(("others", "layer"), [(0.01, "mid"), (2.0, None)])
def test_the_layer_that_changed_most_is_named_where_one_stands_out(judge, others, layer):
    rows = [{"loss": 1.0, "update_ratio": 1e-3}] + [
        {"loss": 40.0 + row, "update_ratio": 3.0} for row in range(30)
    ]

    def table(index):
        return {
            "weight_norm": {"inp": 3.0, "mid": 4.0, "head": 1.0},
            "update_ratio": {"inp": others, "mid": 4.0, "head": others},
        }

    rows.insert(0, {"loss": 1.0, "update_ratio": 1.5})
    found = judge(rows, layers=table).one("RUN201")

    assert (found.where.module if found.where else None) == layer


# ---------------------------------------------------------------- order
@pytest.mark.parametrize(
    ("others", "first"),
    [
        ([(DIVERGENCE, 46, 0.0)], "RUN105"),
        ([(DIVERGENCE, 52, 0.0)], "RUN104"),
        ([(GRADIENT_SPIKE, 52, 30.0)], "RUN301"),
        ([(GRADIENT_SPIKE, 52, 9.0)], "RUN104"),  # may be the first row of weights that were lost
    ],
)
def test_the_row_decides_what_a_loss_left_its_level_by(others, first):
    issues = [LOSS_LEVEL_SHIFT.issue("Jumped.", step=52, row=52)]
    issues += [
        rule.issue("Left.", step=row, row=row, loss=loss, start=1.0) for rule, row, loss in others
    ]

    assert rank(issues)[0].rule == first


# ---------------------------------------------------------------- losses around zero
@pytest.mark.parametrize(("floor", "expected"), [(0.0, []), (5.0, ["RUN105"])])
def test_a_loss_around_zero_has_no_progress_to_lose(judge, floor, expected):
    """The loss of a policy, in the size of its rounding; on a floor it would be a run gone back."""
    rng = random.Random(1)

    def level(row):
        return -1.0 - 0.8 * min(row, 60) / 60 + (0.8 * min(1.0, max(0, row - 100) / 60))

    rows = [{"loss": floor + level(row) + rng.gauss(0.0, 0.9)} for row in range(320)]

    assert judge(rows).rules == expected
