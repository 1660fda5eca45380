"""Healthy runs that look like a fault, faults that look like a healthy run, and what tells them."""

import math

import pytest

from nabla_diagnose.ranking import rank

TWO = {"loss": "cross_entropy", "classes": 2, "batch_size": 64}
TWELVE = {"loss": "cross_entropy", "classes": 12, "batch_size": 16}


def with_rates(healthy, rates):
    return [
        {**row, "lr": rate, "update_ratio": 1e-5 + 0.04 * rate}
        for row, rate in zip(healthy(len(rates)), rates, strict=True)
    ]


# ---------------------------------------------------------------- RUN203
@pytest.mark.parametrize("at", [5, 60, 85])
@pytest.mark.parametrize(("rows", "expected"), [(2, []), (3, ["RUN203"])])
def test_a_rate_must_last_to_be_a_peak(judge, healthy, at, rows, expected):
    rates = [1e-3] * 300
    rates[at : at + rows] = [0.2] * rows
    found = judge(with_rates(healthy, rates), hints={"planned_steps": 300})

    assert [rule for rule in found.rules + found.notes if rule == "RUN203"] == expected


def test_a_peak_of_few_rows_is_one_when_the_rate_comes_up_to_it(judge, healthy):
    rates = [1e-4, 4e-4, 1e-3, 4e-4, 1e-4] + [1e-6] * 100

    assert judge(with_rates(healthy, rates), hints={"planned_steps": 105}).rules == ["RUN203"]


@pytest.mark.parametrize(
    ("decay", "ends", "expected"),
    [
        (0.2, (60, 120, 160), []),
        (0.1, (50, 100, 150), []),
        (0.1, (40, 80, 120, 150), ["RUN203"]),
        (0.02, (80, 140), ["RUN203"]),
    ],
    ids=["three by five", "three by ten", "four by ten", "two by fifty"],
)
def test_decays_by_steps_are_meant(judge, healthy, decay, ends, expected):
    rates = [0.1 * decay ** sum(row >= end for end in ends) for row in range(200)]
    rates = [float(f"{rate:.3g}") for rate in rates]

    assert judge(with_rates(healthy, rates), hints={"planned_steps": 200}).rules == expected


def test_a_rate_that_goes_on_falling_is_no_decay_by_steps(judge, healthy):
    rates = [0.5**row for row in range(12)] + [0.5**12] * 188

    assert judge(with_rates(healthy, rates), hints={"planned_steps": 200}).rules == ["RUN203"]


# ---------------------------------------------------------------- RUN409
@pytest.mark.parametrize(("first", "expected"), [(1e4, ["RUN409"]), (500.0, [])])
def test_one_row_is_enough_for_a_wild_first_loss(judge, first, expected):
    rows = [{"loss": first}, *({"loss": math.nan} for _ in range(20))]
    found = [issue.rule for issue in rank(judge(rows, hints=TWELVE).issues)]

    assert [rule for rule in found if rule == "RUN409"] == expected
    assert found[0] == (expected or ["RUN101"])[0]


@pytest.mark.parametrize(("first", "expected"), [(12.5, ["RUN409"]), (11.0, [])])
def test_a_sure_model_that_learns_at_once_shows_it_in_one_batch(
    judge, healthy, sound_layers, first, expected
):
    rows = [{**row, "loss": 2.4} for row in healthy(60)]
    rows[0]["loss"] = first

    def layers(index):
        table = sound_layers(index)
        table["activation_std"]["head"] = 4.0
        return table

    assert judge(rows, hints=TWELVE, layers=layers).rules == expected


# ---------------------------------------------------------------- RUN207
def summed(healthy, highest, level):
    rows = healthy(120, start=level, end=level, noise=0.5)
    rows[0]["loss"] = 64 * math.log(2.0)
    rows[1]["loss"] = highest
    return rows


@pytest.mark.parametrize(
    ("highest", "level", "expected"),
    [(150.0, 38.0, ["RUN207"]), (120.0, 38.0, []), (150.0, 20.0, [])],
    ids=["thrown up", "not so far", "learns"],
)
def test_a_sum_that_threw_the_run_up_is_reported(judge, healthy, highest, level, expected):
    assert judge(summed(healthy, highest, level), hints=TWO).rules == expected


@pytest.mark.parametrize(("spread", "expected"), [(0.3, []), (1.5, ["RUN409"])])
def test_narrow_outputs_cannot_make_a_loss_high(judge, healthy, sound_layers, spread, expected):
    rows = healthy(40, start=70.0, end=20.0, noise=0.5)

    def layers(index):
        table = sound_layers(index)
        table["activation_std"]["head"] = spread
        return table

    assert judge(rows, hints=TWO, layers=layers).rules == expected


# ---------------------------------------------------------------- RUN112
@pytest.mark.parametrize(("first", "expected"), [(1.38, ["RUN112"]), (1.13, [])])
def test_what_the_first_rows_learnt_counts(judge, healthy, sound_layers, first, expected):
    rows = healthy(250, start=1.10, end=1.10, noise=0.01)
    rows[0]["loss"] = first

    def layers(index):
        table = sound_layers(index)
        table["activation_std"]["head"] = min(9.0, 0.5 + 0.1 * index)
        return table

    hints = {"loss": "cross_entropy", "classes": 4, "batch_size": 16}
    assert judge(rows, hints=hints, layers=layers).rules == expected


# ---------------------------------------------------------------- RUN505
@pytest.mark.parametrize(("spread", "expected"), [(13.0, ["RUN505"]), (11.0, [])])
def test_inputs_of_another_scale_behind_names_that_tell_nothing(judge, healthy, spread, expected):
    def layers(index):
        return {
            "weight_norm": {"stem": 1.0, "pointwise": 4.0},
            "update_ratio": {"stem": 4e-3, "pointwise": 3e-3},
            "activation_std": {"first_act": spread, "second_act": 0.7},
        }

    assert judge(healthy(60), layers=layers).rules == expected


# ---------------------------------------------------------------- RUN301
@pytest.mark.parametrize(("left", "expected"), [(0.9, ["RUN301"]), (4.0, [])])
def test_a_wild_batch_is_named_even_if_the_run_is_worse_for_it(judge, healthy, left, expected):
    rows = healthy(200)
    rows[100].update(loss=40.0, grad_norm=300.0)
    for place, row in enumerate(rows[101:]):
        row["loss"] += left * math.exp(-place / 12)

    assert [rule for rule in judge(rows).rules if rule == "RUN301"] == expected


# ---------------------------------------------------------------- cause and consequence
def test_a_validation_that_rises_after_the_loss_jumped_follows_from_that(judge, healthy):
    rows = healthy(400)
    for place, row in enumerate(rows):
        if place >= 250:
            row["loss"] += 2.0 * math.exp(-(place - 250) / 30)
        if place % 10 == 9:
            row["val_loss"] = 0.5 + 1.5 * math.exp(-place / 60) + (place >= 250) * place / 100
    found = judge(rows)

    assert found.rules == ["RUN104"]
    assert found.one("RUN108").evidence["follows_from"] == "RUN104"


# ---------------------------------------------------------------- RUN104 of averages
@pytest.mark.parametrize(("over", "expected"), [(10, []), (1, ["RUN104"])])
def test_many_rows_tell_an_average_from_single_rows(judge, healthy, over, expected):
    losses = [row["loss"] for row in healthy(320, start=2.0, end=0.7, noise=0.08, seed=3)]
    if over == 1:
        losses[280:] = [loss + 1.2 for loss in losses[280:]]
    for at in (280, 290):  # two bad batches of one sample, next to each other in the window
        losses[at] += 9.0 * (over > 1)
    rows = [
        {"loss": sum(losses[max(0, at - over + 1) : at + 1]) / min(over, at + 1)}
        for at in range(len(losses))
    ]

    assert judge(rows).rules == expected


# ---------------------------------------------------------------- RUN108, RUN110
@pytest.mark.parametrize(
    ("rise", "alarms", "notes"),
    [(0.15, ["RUN108"], []), (0.07, [], ["RUN108"]), (0.045, [], [])],
)
def test_a_model_that_starts_well_must_get_worse_by_an_eighth(judge, healthy, rise, alarms, notes):
    rows = healthy(200, start=0.36, end=0.2, noise=0.01)
    for place, row in enumerate(rows[9::10]):
        row["val_loss"] = 0.32 * (1.02 if place < 2 else 1.0 + rise * (place - 2) / 16)

    assert (judge(rows).rules, judge(rows).notes) == (alarms, notes)


@pytest.mark.parametrize(("last", "expected"), [(2.50, []), (2.79, ["RUN110"])])
def test_a_validation_that_falls_all_the_way_is_measured_otherwise(judge, healthy, last, expected):
    rows = healthy(160)
    for place, row in enumerate(rows[9::10]):
        row["val_loss"] = 2.8 - (2.8 - last) * place / 15 + 0.02 * (place % 2)

    assert judge(rows).rules == expected


# ---------------------------------------------------------------- RUN107
@pytest.mark.parametrize(("samples", "expected"), [(4, ["RUN107"]), (2, [])])
def test_a_few_hundred_samples_teach_too_little(judge, healthy, samples, expected):
    rows = healthy(260, start=math.log(4.0), end=math.log(4.0), noise=0.05)
    hints = {"loss": "cross_entropy", "classes": 4, "batch_size": samples}

    assert judge(rows, hints=hints).rules == expected
