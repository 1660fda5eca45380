"""Faults beside the healthy runs that look like them."""

import math
import random

import pytest

GUESSING = math.log(5)
FIVE = {"loss": "cross_entropy", "classes": 5}


def with_losses(rows, losses):
    return [row | {"loss": loss} for row, loss in zip(rows, losses, strict=True)]


def averaged(losses, keep):
    """Exponential average, as some loops log it."""
    found, average = [], losses[0]
    for loss in losses:
        average = keep * average + (1.0 - keep) * loss
        found.append(average)
    return found


def evaluated(rows, values, every=20):
    return [
        row | ({"val_loss": values[index // every]} if index % every == every - 1 else {})
        for index, row in enumerate(rows)
    ]


# ---------------------------------------------------------------- RUN107, RUN507
def sure_at_first(rows, end, seed=3):
    """A loss that comes down onto a level near that of guessing."""
    rng = random.Random(seed)
    return [
        GUESSING * (end + 0.12 * math.exp(-row / 40.0)) + 0.05 * rng.gauss(0.0, 1.0)
        for row in range(rows)
    ]


def test_coming_down_onto_guessing_is_no_progress(judge, healthy):
    found = judge(with_losses(healthy(400), sure_at_first(400, 1.01)), FIVE)

    assert found.rules == ["RUN107"]
    assert "RUN507" in found.notes


def test_going_on_below_guessing_is_progress(judge, healthy):
    losses = [loss - 0.0006 * max(0, row - 100) for row, loss in enumerate(sure_at_first(400, 1.0))]

    assert judge(with_losses(healthy(400), losses), FIVE).rules == []


@pytest.mark.parametrize(("end", "expected"), [(1.03, ["RUN107"]), (1.06, [])])
def test_far_above_guessing_nothing_is_known(judge, healthy, end, expected):
    assert judge(with_losses(healthy(400), sure_at_first(400, end)), FIVE).rules == expected


def test_noise_that_hides_progress_hides_its_absence(judge, healthy):
    rng = random.Random(1)
    losses = [GUESSING + 1.0 * rng.gauss(0.0, 1.0) for _ in range(400)]

    assert judge(with_losses(healthy(400), losses), FIVE).rules == []


def test_a_loss_that_was_thrown_back_to_guessing_had_left_it(judge, healthy, falling):
    rng = random.Random(2)
    losses = falling(200, start=GUESSING) + [GUESSING + 0.02 * rng.random() for _ in range(300)]

    found = judge(with_losses(healthy(500), losses), FIVE)

    assert found.rules == ["RUN104"]


# ---------------------------------------------------------------- RUN111
def rounded(rows, digits):
    return [
        {
            name: round(value, digits) if name in ("loss", "val_loss") else value
            for name, value in row.items()
            if name != "update_ratio"
        }
        for row in rows
    ]


def test_equal_values_of_two_digits_say_little(judge, healthy):
    rng = random.Random(4)
    losses = [0.86 - 1e-4 * row + 0.15 * rng.gauss(0.0, 1.0) for row in range(400)]
    values = [0.8512 - 1e-4 * number for number in range(20)]
    rows = evaluated(with_losses(healthy(400), losses), values)

    assert "RUN111" not in judge(rounded(rows, 2)).rules


def test_a_stale_copy_is_told_by_little_progress(judge, healthy, falling):
    losses = falling(400, start=2.08, end=1.9, noise=0.01, scale=150.0)
    rows = evaluated(with_losses(healthy(400), losses), [2.0857] * 20)

    assert judge(rows).rules == ["RUN111"]
    assert judge(rounded(rows, 4)).rules == ["RUN111"]


# ---------------------------------------------------------------- RUN110
def test_the_first_evaluation_of_a_gap_may_be_better_than_the_rest(judge, healthy):
    rng = random.Random(5)
    values = [1.75] + [2.3 + 0.1 * rng.gauss(0.0, 1.0) for _ in range(19)]

    assert judge(evaluated(healthy(400), values)).rules == ["RUN110"]


@pytest.mark.parametrize(("level", "expected"), [(5.5, ["RUN110"]), (7.0, [])])
def test_a_validation_loss_of_another_quantity_has_no_gap(judge, healthy, level, expected):
    rng = random.Random(5)  # the first training losses lie around 1.9
    values = [level + 0.1 * abs(rng.gauss(0.0, 1.0)) for _ in range(20)]

    assert judge(evaluated(healthy(400), values)).rules == expected


def test_a_validation_loss_that_came_down_late_has_no_gap(judge, healthy):
    values = [2.3] * 10 + [2.2 - 0.1 * number for number in range(10)]

    assert "RUN110" not in judge(evaluated(healthy(400), values)).rules


# ---------------------------------------------------------------- RUN408, RUN201
def pulled(sound_layers, per_step):
    def layers(index):
        table = sound_layers(0)
        share = max(0.1, math.exp(-per_step * index))
        table["weight_norm"] = {layer: share * norm for layer, norm in table["weight_norm"].items()}
        return table

    return layers


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (0.03, ["RUN408"]),  # the steps are the decay
        (0.09, []),  # the weights wander, and become smaller by the way
    ],
)
def test_weights_that_are_only_pulled_to_zero_collapse(
    judge, healthy, sound_layers, update, expected
):
    rng = random.Random(6)
    rows = [
        row | {"loss": 2.0 + 0.05 * rng.gauss(0.0, 1.0), "update_ratio": update}
        for row in healthy(120)
    ]

    assert judge(rows, layers=pulled(sound_layers, 0.03)).rules == expected


def test_weights_that_are_pulled_while_the_loss_falls_are_right(judge, healthy, sound_layers):
    rows = [row | {"update_ratio": 0.03} for row in healthy(120)]

    assert judge(rows, layers=pulled(sound_layers, 0.03)).rules == []


def test_large_steps_that_also_shrink_the_weights_are_too_large(judge, healthy, sound_layers):
    rng = random.Random(7)
    rows = [
        row | {"loss": GUESSING * 0.98 + 0.02 * rng.gauss(0.0, 1.0), "update_ratio": 0.25}
        for row in healthy(120)
    ]
    rows[0]["loss"] = 2.4

    found = judge(rows, FIVE, layers=pulled(sound_layers, 0.02))

    assert found.rules == ["RUN201"]


# ---------------------------------------------------------------- RUN104, RUN105
def test_one_bad_batch_in_an_average_is_no_shift(judge, healthy, falling):
    losses = falling(400, noise=0.03, seed=1)
    losses[300] = 30.0

    found = judge(with_losses(healthy(400), averaged(losses, 0.9)))

    assert not set(found.rules) & {"RUN104", "RUN105"}


def test_a_shift_in_an_average_is_one(judge, healthy, falling):
    losses = falling(300, noise=0.03, seed=1) + [2.0] * 100

    assert "RUN104" in judge(with_losses(healthy(400), averaged(losses, 0.9))).rules


def test_next_to_guessing_a_rise_from_nothing_is_nothing(judge, healthy):
    rng = random.Random(8)
    losses = [(0.02 if row > 200 else 0.006) * (1.0 + 0.1 * rng.random()) for row in range(400)]
    rows = with_losses(healthy(400), losses)

    assert judge(rows, FIVE).rules == []
    assert judge(rows).rules != []


# ---------------------------------------------------------------- RUN109
def test_an_average_that_began_with_an_easy_batch_is_no_wrong_sign(judge, healthy):
    rng = random.Random(9)
    losses = [0.7, *(1.0 + 0.1 * rng.gauss(0.0, 1.0) for _ in range(399))]

    assert "RUN109" not in judge(with_losses(healthy(400), averaged(losses, 0.98))).rules


# ---------------------------------------------------------------- RUN304
@pytest.mark.parametrize(
    ("norm_of", "expected"),
    [
        (lambda row: 0.3 * (row + 1), ["RUN304"]),  # even gradients
        (lambda row: 0.3 * (row + 1) ** 0.5, ["RUN304"]),  # gradients of unrelated directions
        (lambda row: 0.3 * math.exp(0.03 * max(0, row - 4)), []),  # a norm that begins to grow
    ],
)
def test_a_sum_over_steps_grows_at_once(judge, healthy, norm_of, expected):
    rng = random.Random(10)
    rows = [
        row | {"grad_norm": norm_of(index) * math.exp(0.01 * rng.gauss(0.0, 1.0))}
        for index, row in enumerate(healthy(200, noise=0.2))
    ]

    assert judge(rows).rules == expected


# ---------------------------------------------------------------- RUN202, RUN206
def tiny_steps(healthy, losses):
    rows = with_losses(healthy(len(losses)), losses)
    return [row | {"update_ratio": 1e-6} for row in rows]


def test_easy_batches_are_no_gain_of_tiny_steps(judge, healthy):
    rng = random.Random(11)
    losses = [(1.7 if 40 <= row < 60 else 2.0) + 0.02 * rng.gauss(0.0, 1.0) for row in range(400)]

    assert judge(tiny_steps(healthy, losses)).rules == ["RUN202"]


def test_a_gain_that_stays_is_one_of_tiny_steps_too(judge, healthy, falling):
    assert judge(tiny_steps(healthy, falling(400, start=2.0, end=1.5))).rules == []


def test_what_is_not_logged_is_not_given_a_number(judge, healthy):
    rows = [
        {name: value for name, value in row.items() if name != "lr"} | {"update_ratio": 0.0}
        for row in healthy(60)
    ]

    assert judge(rows).one("RUN206").evidence["lr"] == "not logged"


@pytest.mark.parametrize(("bad_from", "expected"), [(30, ["RUN101"]), (60, ["RUN206", "RUN101"])])
def test_after_a_nan_no_step_is_expected(judge, healthy, bad_from, expected):
    rows = healthy(80)
    for index, row in enumerate(rows):
        row["update_ratio"] = 0.0 if index >= 30 else row["update_ratio"]
        row["loss"] = math.nan if index >= bad_from else row["loss"]

    assert judge(rows).rules == expected


# ---------------------------------------------------------------- consequences
def test_dead_units_explain_weights_that_only_decay(judge, healthy, sound_layers):
    def layers(index):
        table = pulled(sound_layers, 0.03)(index)
        table["dead_fraction"]["inp_act"] = table["zero_fraction"]["inp_act"] = 1.0
        return table

    rng = random.Random(12)
    rows = [
        row | {"loss": 2.0 + 0.05 * rng.gauss(0.0, 1.0), "update_ratio": 0.03}
        for row in healthy(120)
    ]

    found = judge(rows, layers=layers)

    assert found.rules == ["RUN401"]
    assert found.one("RUN408").evidence["follows_from"] == "RUN401"
