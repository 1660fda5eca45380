"""Noise, averages and wandering terms: what still decides, and the healthy twins of it."""

import math
import random

import pytest

CLASSES = {"loss": "cross_entropy", "classes": 4, "batch_size": 16}


def averaged(losses, over=10):
    return [
        {"loss": sum(losses[max(0, at - over + 1) : at + 1]) / min(over, at + 1)}
        for at in range(len(losses))
    ]


# ---------------------------------------------------------------- RUN104
@pytest.mark.parametrize(
    ("bad", "expected"), [((200, 211, 220), []), (range(200, 260), ["RUN104"])]
)
def test_bad_batches_in_an_average_are_no_level(judge, falling, bad, expected):
    losses = falling(320, start=0.8, end=0.02, noise=0.01)
    for at in bad:
        losses[at] += 9.0 if len(bad) < 10 else 0.9

    assert judge(averaged([abs(loss) for loss in losses])).rules == expected


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_ten_steps_with_bad_batches_are_no_level(judge, falling, seed):
    losses = falling(300, start=2.0, end=0.2, noise=0.01, seed=seed)
    for at in random.Random(seed).sample(range(150, 180), 9):
        losses[at] += 3.0

    assert "RUN104" not in judge([{"loss": loss} for loss in losses]).rules


@pytest.mark.parametrize(("share", "expected"), [(1.0, ["RUN104"]), (0.6, [])])
def test_weights_that_were_reset_in_a_noisy_run(judge, falling, share, expected):
    losses = falling(400, start=1.8, end=0.6, noise=0.22, scale=30.0, seed=4)
    again = falling(400, start=1.8, end=0.6, noise=0.0, scale=30.0)
    for at in range(250, 400):
        losses[at] += share * (again[at - 250] - 0.6)

    assert judge([{"loss": loss} for loss in losses]).rules == expected


# ---------------------------------------------------------------- RUN103
@pytest.mark.parametrize(("height", "expected"), [(25.0, ["RUN103"]), (15.0, [])])
def test_two_wild_spikes_are_enough(judge, falling, height, expected):
    losses = falling(300)
    losses[150] += height
    losses[220] += height

    assert judge([{"loss": loss} for loss in losses]).rules == expected


# ---------------------------------------------------------------- RUN105, RUN109
@pytest.mark.parametrize(("level", "expected"), [(2.6, []), (3.0, ["RUN105"])])
def test_first_batches_of_one_kind_are_an_easy_start(judge, healthy, level, expected):
    rows = [{"loss": row["loss"]} for row in healthy(200, start=1.3, end=0.3, noise=0.02)]
    for at, row in enumerate(rows[:32]):
        row["loss"] = 0.5 - 0.02 * at if at < 12 else level

    assert judge(rows, hints=CLASSES).rules == expected


def test_a_noisy_climb_is_told_from_noise(judge, falling):
    climb = [5.0 + 0.05 * at for at in range(120)]
    noise = falling(120, start=0.0, end=0.0, noise=1.0, seed=3)
    signals = {"lr": 1e-3, "update_ratio": 4e-3, "grad_norm": 1.0}

    rising = [{"loss": a + b, **signals} for a, b in zip(climb, noise, strict=True)]
    flat = [{"loss": 5.0 + b, **signals} for b in noise]

    assert judge(rising).rules == ["RUN109"]
    assert judge(flat).rules == []


# ---------------------------------------------------------------- RUN304
@pytest.mark.parametrize(("noise", "expected"), [(0.01, ["RUN304"]), (0.08, [])])
def test_a_sum_of_gradients_is_told_later_by_its_calm(judge, healthy, noise, expected):
    rng = random.Random(2)
    rows = healthy(200, noise=0.4)
    for at, row in enumerate(rows):
        rough = 0.08 if at < 40 else noise
        row["grad_norm"] = (1.0 + 0.2 * at) * math.exp(rough * rng.gauss(0.0, 1.0))

    assert judge(rows).rules == expected


# ---------------------------------------------------------------- RUN506, RUN108
@pytest.mark.parametrize(("every", "expected"), [(1, False), (10, True)])
def test_rows_of_a_log_by_epochs_are_smooth(judge, every, expected):
    rows = [{"loss": 2.0 * 0.93**at} for at in range(60)]
    for row in rows[every - 1 :: every]:
        row["val_loss"] = 2.1

    assert ("RUN506" in judge(rows).rules) == expected


@pytest.mark.parametrize(("noise", "expected"), [(0.1, True), (0.25, False)])
def test_gradients_that_vary_are_of_many_batches(judge, noise, expected):
    rng = random.Random(6)
    rows = [{"loss": 2.0 * 0.93**at} for at in range(60)]
    for at, row in enumerate(rows):
        row["grad_norm"] = math.exp(noise * rng.gauss(0.0, 1.0))
        row |= {"val_loss": 2.1} if at % 10 == 9 else {}

    assert ("RUN506" in judge(rows).rules) == expected


@pytest.mark.parametrize(("rise", "expected"), [(0.08, []), (0.13, ["RUN108"])])
def test_a_model_that_never_did_better_must_get_much_worse(judge, healthy, rise, expected):
    rows = healthy(200)
    for place, row in enumerate(rows[9::10]):
        row["val_loss"] = 2.0 * (1.0 + rise * min(1.0, place / 10)) + 1e-3 * (place % 2)

    assert judge(rows).rules == expected


# ---------------------------------------------------------------- RUN112
@pytest.mark.parametrize(("spread", "expected"), [(4.2, ["RUN112"]), (3.8, [])])
def test_outputs_that_are_sure_while_the_loss_is_not(
    judge, healthy, sound_layers, spread, expected
):
    rows = healthy(250, start=1.38, end=1.05, noise=0.02)

    def layers(index):
        table = sound_layers(index)
        table["activation_std"]["head"] = min(spread, 0.5 + 0.1 * index)
        return table

    assert judge(rows, hints=CLASSES, layers=layers).rules == expected


# ---------------------------------------------------------------- RUN601, RUN603
@pytest.mark.parametrize(("period", "expected"), [(4, ["RUN601"]), (2, [])])
def test_a_discriminator_may_lose_some_rows_and_win(judge, healthy, period, expected):
    rows = healthy(300)
    for at, row in enumerate(rows):
        row["d_loss"] = 1.2 if at < 60 or at % period == 0 else 0.01

    assert judge(rows).rules == expected


@pytest.mark.parametrize(("before", "expected"), [(0.30, ["RUN603"]), (0.15, [])])
def test_a_policy_that_became_sure_of_something_better_has_solved_it(
    judge, healthy, before, expected
):
    rng = random.Random(5)
    rows = healthy(300)
    for at, row in enumerate(rows):
        row["entropy"] = 1.3 if at < 5 else 0.001
        row["reward"] = (before if at < 5 else 0.3) + 0.05 * rng.gauss(0.0, 1.0)

    assert judge(rows).rules == expected
