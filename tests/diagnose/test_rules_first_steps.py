"""What the first rows and the first measurements of layers give away, with twins just below."""

import math

import pytest

from nabla_diagnose.ranking import rank

CLASSES = {"loss": "cross_entropy", "classes": 4, "batch_size": 16}


@pytest.fixture
def judge_first(judge, healthy, sound_layers):
    """Judge a run in which measurements of layers are changed."""

    def run(change, *, rows=None, hints=None):
        def layers(index):
            table = {name: dict(column) for name, column in sound_layers(index).items()}
            change(table, index)
            return table

        return judge(rows or healthy(120), hints=hints, layers=layers)

    return run


def standing(healthy, level=2.0, rows=150, **signals):
    return [{**row, **signals} for row in healthy(rows, start=level, end=level, noise=0.02)]


# ---------------------------------------------------------------- RUN404
@pytest.mark.parametrize(
    ("rest", "expected"), [(3e-7, ["RUN404"]), (1e-6, []), (0.0, [])], ids=["cancels", "no", "zero"]
)
def test_gradients_that_cancel_out_come_from_equal_rows(judge_first, rest, expected):
    def change(table, index):
        if index == 0:  # a last layer of zeros holds everything back exactly, and once
            table["grad_norm"] = {"inp": 0.3 * rest, "mid.0": rest, "mid.2": rest, "head": 0.8}

    assert judge_first(change).rules == expected


def test_what_saturation_holds_back_does_not_cancel_out(judge_first):
    def change(table, index):
        if index == 0:
            table["grad_norm"] = {"inp": 1e-9, "mid.0": 1e-9, "mid.2": 1e-9, "head": 0.8}
            table["saturated_fraction"]["mid.1"] = 0.99

    assert judge_first(change).rules == []


@pytest.mark.parametrize(
    ("share", "flows", "samples", "expected"),
    [
        (0.375, False, 16, ["RUN404"]),
        (0.380, False, 16, []),
        (0.375, True, 16, []),
        (0.375, False, 4, []),
    ],
    ids=["constant", "alive", "gradients", "few samples"],
)
def test_units_that_see_no_input_have_no_weights(judge_first, share, flows, samples, expected):
    def change(table, index):
        table["zero_fraction"]["inp_act"] = share
        table["dead_fraction"]["inp_act"] = 0.375
        if index == 0 and not flows:
            table["grad_norm"] = {"inp": 0.0, "mid.0": 0.0, "mid.2": 0.0, "head": 0.4}

    assert judge_first(change, hints={"batch_size": samples}).rules == expected


# ---------------------------------------------------------------- RUN201
@pytest.mark.parametrize(("share", "expected"), [(0.75, ["RUN201"]), (0.65, [])])
def test_a_first_step_that_replaces_layers_and_teaches_nothing(
    judge_first, healthy, share, expected
):
    def change(table, index):
        if index == 0:
            table["update_ratio"] = {"inp": 0.01, "mid.0": share, "mid.2": share, "head": 1.5}

    assert judge_first(change, rows=standing(healthy)).rules == expected
    assert judge_first(change).rules == []  # the loss falls: no harm was done


@pytest.mark.parametrize(
    ("update", "level", "expected"),
    [(0.05, 3.2, ["RUN201"]), (0.05, 2.8, []), (0.03, 3.2, [])],
)
def test_steps_that_wander_upwards(judge, healthy, update, level, expected):
    rows = standing(healthy, update_ratio=update)
    for row in rows[12:]:
        row["loss"] += level - 2.0

    assert judge(rows).rules == expected


# ---------------------------------------------------------------- RUN302
@pytest.mark.parametrize(("first", "expected"), [(1e-7, ["RUN302"]), (1e-5, [])])
def test_two_measurements_are_enough_for_a_millionth(judge_first, first, expected):
    def change(table, index):
        if index < 20:
            table["grad_norm"] = {"inp": first, "mid.0": 1e-3, "mid.2": 2e-2, "head": 0.4}

    assert judge_first(change).rules == expected


@pytest.mark.parametrize(("grown", "expected"), [(2.1, []), (1.9, ["RUN302"])])
def test_gradients_behind_weights_that_grew_did_not_vanish_by_depth(judge_first, grown, expected):
    def change(table, index):
        if index >= 10:
            table["grad_norm"] = {"inp": 1e-6, "mid.0": 1e-3, "mid.2": 2e-2, "head": 0.4}
            table["weight_norm"] = {"inp": 3 * grown, "mid.0": 4 * grown, "mid.2": 4 * grown}
            table["weight_norm"]["head"] = 1.0

    assert judge_first(change).rules == expected


# ---------------------------------------------------------------- RUN409, RUN105
@pytest.mark.parametrize(("spread", "expected"), [(2.2, ["RUN409"]), (1.8, [])])
def test_a_sure_model_needs_one_loss_only(judge_first, healthy, spread, expected):
    def change(table, index):
        if index == 0:
            table["activation_std"]["head"] = spread

    rows = healthy(120)
    rows[0]["loss"] = 9.0

    assert judge_first(change, rows=rows, hints=CLASSES).rules == expected


@pytest.mark.parametrize(
    ("peak", "rest", "expected"), [(12.0, 1.5, ["RUN105"]), (7.0, 1.5, []), (12.0, 0.9, [])]
)
def test_a_loss_that_blew_up_at_once_and_came_back_to_guessing(
    judge, healthy, peak, rest, expected
):
    rows = standing(healthy, level=rest, update_ratio=None, grad_norm=None)
    for index, row in enumerate(rows[:12]):
        row["loss"] = peak + 0.1 * (index % 3) if index else 1.4

    assert judge(rows, hints=CLASSES).rules == expected


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([0.7, 5.0, 40.0, 300.0, 0.0, 9e4, 9e6, math.nan], ["RUN105", "RUN101"]),
        ([0.7, 0.8, 0.6, 0.7, 0.5, 0.6, 0.7, math.nan], ["RUN101"]),
        ([0.7, 2.0, 3.4, 3.4, 3.4, 3.4, 9e4, math.nan], ["RUN101"]),
    ],
)
def test_a_climb_that_ends_in_nan_is_the_cause_of_it(judge, losses, expected):
    found = judge([{"loss": loss} for loss in losses])

    assert [issue.rule for issue in rank(found.issues) if issue.severity > 10] == expected


# ---------------------------------------------------------------- RUN202
def test_a_jagged_descent_to_nothing_is_a_gain(judge):
    losses = [*([1.0, 0.2] * 5), *[0.01 * 0.97**at for at in range(190)]]
    rows = [{"loss": loss, "update_ratio": 4e-5} for loss in losses]

    assert judge(rows).rules == []


@pytest.mark.parametrize(("later", "expected"), [(4e-5, ["RUN202"]), (6e-5, [])])
def test_steps_that_get_smaller_are_looked_at_again(judge, healthy, later, expected):
    rows = standing(healthy, rows=200)
    for index, row in enumerate(rows):
        row["update_ratio"] = 7e-5 if index < 70 else later

    assert judge(rows).rules == expected


def test_updates_that_are_nan_have_no_size(judge, healthy):
    rows = healthy(60)
    for row in rows[50:]:
        row["update_ratio"] = row["grad_norm"] = math.nan
        row["loss"] = math.nan if row is not rows[50] else row["loss"]

    assert "RUN201" not in judge(rows).rules
