"""Rules about the size of steps, schedules and gradients."""

import math
import random

import pytest


# ---------------------------------------------------------------- RUN201, RUN207
def exploding(healthy, update=5.0, factor=4.0, rows=60):
    found = healthy(rows)
    for index, row in enumerate(found):
        row["loss"] = 2.0 * factor ** min(index, 6)
        row["update_ratio"] = update
    return found


def test_large_steps_with_a_worse_loss_are_too_large(judge, healthy):
    found = judge(exploding(healthy))

    assert found.rules == ["RUN201"]  # the divergence follows from it
    assert found.one("RUN201").step == 0
    assert found.one("RUN201").evidence["noticed_step"] <= 2


def test_large_steps_with_a_falling_loss_are_not(judge, healthy):
    rows = healthy(300)
    for row in rows[:20]:
        row["update_ratio"] = 0.9

    assert judge(rows).rules == []


@pytest.mark.parametrize(("steps", "expected"), [(1, []), (2, ["RUN201"])])
def test_one_large_step_is_that_of_an_optimizer_without_history(judge, healthy, steps, expected):
    rows = healthy(200)
    for row in rows[:steps]:
        row["update_ratio"] = 0.4
    rows[0]["loss"] = 0.5  # a lucky first batch
    rows[1]["loss"] = 6.0

    assert judge(rows).rules == expected


@pytest.mark.parametrize(("update", "expected"), [(0.12, ["RUN201"]), (0.08, [])])
def test_steps_of_a_tenth_without_any_gain_are_too_large(judge, healthy, update, expected):
    rng = random.Random(0)
    rows = [
        {**row, "loss": 2.0 + 0.2 * rng.gauss(0, 1), "update_ratio": update} for row in healthy(100)
    ]

    assert judge(rows).rules == expected


def test_a_summed_loss_is_named_as_the_cause(judge, healthy):
    rows = exploding(healthy)
    for row in rows:
        row["loss"] *= math.log(3) * 64 / 2.0

    found = judge(rows, hints={"loss": "cross_entropy", "classes": 3, "batch_size": 64})

    assert found.rules == ["RUN207", "RUN201"]


def test_a_summed_loss_that_trains_is_not_reported(judge, healthy):
    rows = healthy(200)
    for row in rows:
        row["loss"] *= math.log(3) * 64 / 2.0

    hints = {"loss": "cross_entropy", "classes": 3, "batch_size": 64}
    assert judge(rows, hints=hints).rules == []


# ---------------------------------------------------------------- RUN202, RUN205, RUN206
def still(healthy, update, clip=None, rows=120):
    rng = random.Random(0)
    return [
        {
            **row,
            "loss": 2.0 + 0.05 * rng.gauss(0, 1),
            "update_ratio": update,
            "clip_coef": clip,
        }
        for row in healthy(rows)
    ]


@pytest.mark.parametrize(("update", "expected"), [(2e-5, ["RUN202"]), (8e-5, [])])
def test_steps_that_hardly_move_are_too_small(judge, healthy, update, expected):
    assert judge(still(healthy, update)).rules == expected


def test_small_steps_with_a_falling_loss_are_right(judge, healthy):
    rows = [{**row, "update_ratio": 2e-5} for row in healthy(120)]

    assert judge(rows).rules == []


def test_small_steps_of_a_warm_up_are_right(judge, healthy):
    rows = still(healthy, 2e-5)
    for index, row in enumerate(rows):
        row["lr"] = 1e-6 * (index + 1)

    assert judge(rows).rules == []


@pytest.mark.parametrize(("clip", "expected"), [(1e-3, ["RUN205"]), (0.5, ["RUN202"])])
def test_clipping_is_named_where_it_leaves_nothing(judge, healthy, clip, expected):
    assert judge(still(healthy, 2e-5, clip)).rules == expected


def test_tight_clipping_that_trains_is_right(judge, healthy):
    assert judge([{**row, "clip_coef": 1e-3} for row in healthy(200)]).rules == []


@pytest.mark.parametrize(("rows", "expected"), [(10, ["RUN206"]), (9, [])])
def test_updates_of_exactly_zero_are_reported(judge, healthy, rows, expected):
    run = healthy(100)
    for row in run[30 : 30 + rows]:
        row["update_ratio"] = 0.0

    assert judge(run).rules == expected


def test_a_rate_of_zero_is_named(judge, healthy):
    rows = still(healthy, 0.0)
    for row in rows:
        row["lr"] = 0.0

    found = judge(rows)

    assert found.rules == ["RUN206"]
    assert "the learning rate is 0" in found.one("RUN206").message


def test_rows_between_the_steps_of_an_accumulation_are_no_stop(judge, healthy):
    rows = healthy(300)
    for index, row in enumerate(rows):
        if index % 16:
            row["update_ratio"] = 0.0

    assert judge(rows, hints={"accumulate": 16}).rules == []


def test_the_end_of_a_schedule_is_no_stop(judge, healthy):
    rows = healthy(300)
    for row in rows[285:]:
        row["lr"] = row["update_ratio"] = 0.0

    assert judge(rows).rules == []


# ---------------------------------------------------------------- RUN203, RUN204
def scheduled(healthy, rates):
    return [
        {**row, "lr": rate, "update_ratio": 4.0 * rate}
        for row, rate in zip(healthy(len(rates)), rates, strict=True)
    ]


def linear(end, rows=400):
    return [1e-3 * max(1e-6, 1.0 - row / end) for row in range(rows)]


def test_a_schedule_that_ends_early_is_reported(judge, healthy):
    found = judge(scheduled(healthy, linear(120)), hints={"planned_steps": 400})

    assert found.rules == ["RUN203"]
    assert found.one("RUN203").step in range(117, 121)


def test_without_planned_steps_the_low_phase_must_last(judge, healthy):
    assert judge(scheduled(healthy, linear(120))).rules == ["RUN203"]
    assert judge(scheduled(healthy, linear(300))).rules == []


@pytest.mark.parametrize("end", [400, 370])
def test_a_schedule_that_ends_with_the_run_is_right(judge, healthy, end):
    assert judge(scheduled(healthy, linear(end)), hints={"planned_steps": 400}).rules == []


def test_restarts_are_right(judge, healthy):
    rates = [1e-3 * (0.5 + 0.5 * math.cos(math.pi * (row % 80) / 80)) for row in range(400)]

    assert judge(scheduled(healthy, rates), hints={"planned_steps": 400}).rules == []


def test_two_decays_by_ten_are_right(judge, healthy):
    rates = [1e-3 * 0.1 ** (row // 133) for row in range(399)]

    assert judge(scheduled(healthy, rates), hints={"planned_steps": 399}).rules == []


def jumping(healthy, factor, level):
    rows = healthy(300)
    for row in rows[200:]:
        row["lr"] *= factor
        row["loss"] += level
    return rows


def test_a_rate_that_jumps_with_the_loss_is_reported(judge, healthy):
    found = judge(jumping(healthy, 30.0, 2.0))

    assert found.rules == ["RUN204"]
    assert found.one("RUN204").step == 200


def test_a_rate_that_jumps_alone_is_not(judge, healthy):
    assert judge(jumping(healthy, 30.0, 0.0)).rules == []


def test_a_rate_that_rises_by_less_is_not_the_cause(judge, healthy):
    assert "RUN204" not in judge(jumping(healthy, 4.0, 2.0)).rules


# ---------------------------------------------------------------- RUN301, RUN502
def outliers(healthy, at, loss, norm):
    rows = healthy(400)
    for index in at:
        rows[index]["loss"], rows[index]["grad_norm"] = loss, norm
    return rows


def test_a_shared_spike_is_reported_and_the_second_as_a_bad_batch(judge, healthy):
    assert judge(outliers(healthy, (150,), 8.0, 50.0)).rules == ["RUN301"]
    assert judge(outliers(healthy, (150, 250), 8.0, 50.0)).rules == ["RUN301", "RUN502"]


@pytest.mark.parametrize(("loss", "norm"), [(0.7, 50.0), (8.0, 5.0)])
def test_a_spike_of_one_of_them_is_not(judge, healthy, loss, norm):
    assert judge(outliers(healthy, (150, 250), loss, norm)).rules == []


def test_batches_of_one_sample_may_spike(judge, healthy):
    rows = outliers(healthy, (150, 250), 8.0, 50.0)

    assert judge(rows, hints={"batch_size": 1}).rules == []


# ---------------------------------------------------------------- RUN304
def summed(healthy, growth, noise=0.01):
    rng = random.Random(1)
    return [
        {**row, "grad_norm": (0.2 + growth * index) * math.exp(noise * rng.gauss(0, 1))}
        for index, row in enumerate(healthy(200))
    ]


def test_a_gradient_that_is_a_sum_over_steps_is_reported(judge, healthy):
    found = judge(summed(healthy, 0.2))

    assert found.rules == ["RUN304"]
    assert found.one("RUN304").step == 0


def test_a_gradient_that_grows_with_the_noise_of_its_batches_is_not(judge, healthy):
    assert judge(summed(healthy, 0.2, noise=0.3)).rules == []


def test_a_smooth_gradient_that_does_not_grow_is_not(judge, healthy):
    assert judge(summed(healthy, 1e-3)).rules == []


def test_one_batch_over_and_over_is_smooth_as_well(judge, healthy):
    rows = summed(healthy, 0.01)
    for index, row in enumerate(rows):
        row["loss"] = 2.0 * math.exp(-index / 300)

    assert "RUN304" not in judge(rows).rules


# ---------------------------------------------------------------- RUN409
@pytest.mark.parametrize(("times", "expected"), [(5.0, ["RUN409"]), (3.3, [])])
def test_a_first_loss_far_above_guessing_is_reported(judge, healthy, times, expected):
    rows = healthy(100, start=times * math.log(10), noise=0.01, scale=200.0)

    assert judge(rows, hints={"loss": "cross_entropy", "classes": 10}).rules == expected


def test_without_the_number_of_classes_it_cannot_be_judged(judge, healthy):
    assert judge(healthy(100, start=50.0)).rules == []
