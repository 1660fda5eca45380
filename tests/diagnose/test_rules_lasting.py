"""Rises that last, and first rows that tell: each with a good twin and a case below its limit."""

import math
import random

import pytest


def validated(rows, values, every=20):
    for place, value in enumerate(values):
        rows[place * every + every - 1]["val_loss"] = value
    return rows


def risen(low, rise, count=20):
    """A validation loss that falls for four evaluations and then rises by ``rise`` in all."""
    falling = [2.0 - (2.0 - low) * place / 3 for place in range(4)]
    return falling + [low + rise * place / (count - 6) for place in range(1, count - 3)]


# ---------------------------------------------------------------- RUN108
@pytest.mark.parametrize(
    ("low", "rise", "alarms", "notes"),
    [
        (0.5, 0.65, ["RUN108"], []),
        (0.5, 0.5, [], ["RUN108"]),  # less than the minimum itself
        (0.5, 0.2, [], []),  # less than a fifth of the progress
        (1.2, 1.1, ["RUN108"], []),
        (1.2, 0.6, [], ["RUN108"]),  # less than all of the progress
    ],
)
def test_a_rise_is_an_alarm_where_later_models_are_useless(
    judge, healthy, low, rise, alarms, notes
):
    found = judge(validated(healthy(400, end=0.01, noise=0.005), risen(low, rise)))

    assert found.rules == alarms
    assert [rule for rule in found.notes if rule == "RUN108"] == notes


def test_a_rise_that_is_made_up_for_is_not_noted(judge, healthy):
    values = [*risen(0.5, 0.5, count=12), 0.6, 0.5, 0.45, 0.44, 0.43, 0.43, 0.42, 0.42]

    found = judge(validated(healthy(400, end=0.01, noise=0.005), values))

    assert "RUN108" not in [*found.rules, *found.notes]


def test_of_a_loss_below_zero_only_the_progress_counts(judge, healthy):
    rows = healthy(400, start=1.0, end=-2.0, noise=0.005)
    values = [0.9, 0.4, 0.0, -0.02, *(-0.02 + 0.035 * place for place in range(1, 17))]

    assert judge(validated(rows, values)).rules == []


# ---------------------------------------------------------------- RUN110
@pytest.mark.parametrize(("step", "expected"), [(0.03, ["RUN110"]), (0.06, [])])
def test_what_is_never_evaluated_anew_may_creep(judge, healthy, step, expected):
    values = [1.9 * (1.0 + step * (place > 2) + 1e-3 * place) for place in range(20)]

    assert judge(validated(healthy(400), values)).rules == expected


# ---------------------------------------------------------------- RUN111
@pytest.mark.parametrize(("falls", "expected"), [(0.0, []), (0.6, ["RUN111"])])
def test_equal_evaluations_of_a_run_that_has_settled_are_no_news(judge, healthy, falls, expected):
    rows = healthy(400, end=1.48, noise=0.04, seed=3)
    rows = [
        {**row, "loss": round(row["loss"] - falls * max(0, at - 280) / 120, 4)}
        for at, row in enumerate(rows)
    ]
    values = [*(round(1.9 - 0.028 * place, 3) for place in range(15)), *[1.474] * 5]

    assert judge(validated(rows, values)).rules == expected


# ---------------------------------------------------------------- RUN409
FEW = [2.0, 12.0, 1.0, 9.0, 0.1, 14.0, 8.0, 11.0, 7.5, 10.0]
HINTS = {"loss": "cross_entropy", "classes": 3, "batch_size": 2}


@pytest.mark.parametrize(
    ("scale", "update", "expected"),
    [
        (1.0, 1e-4, ["RUN409"]),
        (1.0, 1e-2, []),  # the steps may have done it
        (0.53, 1e-4, []),  # a median of 4.6, and the limit is 4.8
    ],
)
def test_ten_losses_of_the_first_parameters_tell(judge, scale, update, expected):
    rows = [{"loss": scale * loss, "update_ratio": update} for loss in FEW]
    rng = random.Random(0)
    rows += [
        {"loss": 4.0 * math.exp(-k / 20) + 0.2 * rng.random(), "update_ratio": update}
        for k in range(80)
    ]

    assert judge(rows, hints=HINTS).rules == expected


def test_a_high_first_loss_is_told_once(judge):
    rows = [{"loss": 12.0 - 0.1 * row, "update_ratio": 1e-4} for row in range(40)]

    assert [issue.rule for issue in judge(rows, hints=HINTS).issues].count("RUN409") == 1


# ---------------------------------------------------------------- RUN105
def there_and_back(share, noise=0.05, rows=500):
    """A loss that falls from 2.0 to 1.0 in 100 rows, and slowly wins back ``share`` of that."""
    rng = random.Random(1)
    down = [2.0 - min(1.0, row / 100) for row in range(rows)]
    up = [share * min(1.0, max(0.0, (row - 120) / 200)) for row in range(rows)]
    return [{"loss": a + b + noise * rng.gauss(0, 1)} for a, b in zip(down, up, strict=True)]


@pytest.mark.parametrize(
    ("share", "noise", "expected"),
    [
        (0.95, 0.05, ["RUN105"]),
        (0.95, 0.2, ["RUN105"]),
        (0.65, 0.05, []),  # a curriculum, or a rate that came back
        (0.95, 1.0, ["RUN105"]),  # medians of fifty rows have a fifth of it
        (0.95, 4.0, []),  # noise that hides the progress
    ],
)
def test_progress_that_is_lost_for_good_is_divergence(judge, share, noise, expected):
    assert judge(there_and_back(share, noise)).rules == expected


def test_a_run_that_was_started_again_has_lost_nothing(judge):
    assert judge(there_and_back(0.95), restart=250).rules == []


# ---------------------------------------------------------------- RUN505
@pytest.mark.parametrize(("times", "expected"), [(20.0, ["RUN505"]), (12.0, [])])
def test_the_gradient_tells_of_inputs_that_bounded_outputs_hide(
    judge, healthy, sound_layers, times, expected
):
    def layers(index):
        table = sound_layers(index)
        return {**table, "grad_norm": {**table["grad_norm"], "inp": 0.4 * times}}

    assert judge(healthy(200), layers=layers).rules == expected


@pytest.mark.parametrize(("update", "expected"), [(4e-3, True), (0.1, False)])
def test_outputs_that_the_steps_made_wide_say_nothing_of_the_inputs(
    judge, healthy, sound_layers, update, expected
):
    def layers(index):
        table = sound_layers(index)
        wide = {**table["activation_std"], "inp_act": 40.0 if index else 0.4}
        return {**table, "activation_std": wide}

    rows = [{**row, "update_ratio": update} for row in healthy(60)]

    assert ("RUN505" in judge(rows, layers=layers).rules) == expected
