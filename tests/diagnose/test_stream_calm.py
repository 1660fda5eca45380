"""Rows that no check needs to see wait for the end of their block, and nothing else changes."""

import math
import random
import statistics
import sys

import pytest

import nabla
from nabla_core.records import StepRecord
from nabla_diagnose.calm import Calm
from nabla_diagnose.calm_rows import CalmRows
from nabla_diagnose.checks.roster import make_checks
from nabla_diagnose.detector import RunDetector
from nabla_diagnose.level import Level
from nabla_diagnose.options import DiagnoseOptions
from nabla_diagnose.row_judge import RowJudge
from nabla_diagnose.stretch import Stretch

HINTS = {"loss": "cross_entropy", "classes": 8}


def spike(rows, rng):
    for _ in range(4):
        row = rows[rng.randrange(100, len(rows))]
        row.update(loss=row["loss"] + 5.0, grad_norm=40.0)


def shift(rows, rng):
    for row in rows[rng.randrange(100, len(rows)) :]:
        row["loss"] += 2.0


def broken(rows, rng):
    for row in rows[rng.randrange(30, len(rows)) :]:
        row["loss"] = math.nan


def rate_jump(rows, rng):
    for row in rows[rng.randrange(50, len(rows)) :]:
        row.update(lr=row["lr"] * 20.0, loss=row["loss"] + 3.0)


def rate_gone(rows, rng):
    for row in rows[rng.randrange(20, len(rows)) :]:
        row["lr"] *= rng.choice([1e-3, 0.0])


def schedule(rows, rng):
    for place, row in enumerate(rows):
        warm = min(1.0, (place + 1) / 60)
        row["lr"] = 1e-3 * warm * 0.5 * (1.0 + math.cos(math.pi * place / len(rows)))


def decay(rows, rng):
    fall = rng.choice([9.0, 12.0])
    for place, row in enumerate(rows):
        row["lr"] *= math.exp(-fall * place / len(rows))


def steep_decay_by_steps(rows, rng):
    at = rng.randrange(15, 90)
    for place, row in enumerate(rows):
        row["lr"] *= 0.05 ** ((place >= at) + (place >= 2 * at))


def restarts(rows, rng):
    period = rng.randrange(30, 90)
    for place, row in enumerate(rows):
        row["lr"] *= 0.5 * (1.0 + math.cos(math.pi * (place % period) / period))


def no_updates(rows, rng):
    for row in rows[rng.randrange(5, len(rows)) :]:
        row["update_ratio"] = 0.0


def ends_and_begins_again(rows, rng):
    ended, again = sorted(rng.sample(range(60, len(rows)), 2))
    for row in rows[ended:]:
        row.update(lr=0.0, update_ratio=0.0)
    for row in rows[again:]:
        row["lr"] = 1e-3
    for row in rng.sample(rows[ended:], 5):
        row["update_ratio"] = 1e-9


def large_updates(rows, rng):
    for row in rows[3:60]:
        row.update(update_ratio=0.5, loss=9.0)


def diverges(rows, rng):
    start = rng.randrange(50, len(rows))
    for place, row in enumerate(rows[start:]):
        row.update(loss=row["loss"] + 0.4 * place, update_ratio=rng.choice([4e-3, 0.2]))
    for row in rows[start + 90 :]:
        row["loss"] = 0.5


def late_large_updates(rows, rng):
    for row in rows[rng.randrange(90, 112) :]:
        row.update(update_ratio=0.5, loss=9.0)


def overfits(rows, rng):
    for place in range(9, len(rows), 10):
        rows[place]["val_loss"] = 1.0 + abs(place - 100) / 200
        rows[place]["val_accuracy"] = 0.5


def holes(rows, rng):
    for row in rows:
        if rng.random() < 0.05:
            row.pop(rng.choice(["loss", "grad_norm", "lr"]))
        if rng.random() < 0.03:
            row["grad_norm"] = rng.choice([math.inf, 0.0, math.nan])


def unruly_start(rows, rng):
    for _ in range(4):
        name = rng.choice(["loss", "lr", "grad_norm", "update_ratio"])
        rows[rng.randrange(12)][name] *= rng.choice([0.0, 2.0, 9.0, 100.0, -1.0])


def high_start(rows, rng):
    for row in rows[: rng.choice([1, 3, 30])]:
        row["loss"] *= 6.0


def unknown_signals(rows, rng):
    for place, row in enumerate(rows):
        row.update({"accuracy": 0.5} if place % 3 else {"memory": math.nan, "accuracy": 0.5})


FAULTS = (
    None, spike, shift, broken, rate_jump, rate_gone, schedule, decay, steep_decay_by_steps,
    restarts, no_updates, ends_and_begins_again, diverges, large_updates, late_large_updates,
    overfits, holes, unruly_start, high_start, unknown_signals,
)  # fmt: skip


def live(rows, hints, steps=None):
    """Log rows; return at which of them which issues were raised, and all that the report has."""
    run = nabla.watch(hints=hints, quiet=True)
    raised = [
        (place, issue.rule, issue.step, issue.message, issue.severity)
        for place, row in enumerate(rows)
        for issue in run.log(steps[place] if steps else None, **row)
    ]
    report = run.finish()
    return raised, [(issue.rule, issue.step, issue.message) for issue in report.issues]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("hints", [{}, HINTS])
def test_each_issue_is_raised_by_the_row_that_raises_it_alone(healthy, monkeypatch, fault, hints):
    for seed in range(2):
        rng = random.Random(seed)
        rows = healthy(rng.randint(150, 420), seed=seed)
        if fault is not None:
            fault(rows, rng)

        together = live(rows, hints)
        with monkeypatch.context() as patch:
            patch.setattr(RowJudge, "_calm_for", lambda judge, names, room: None)
            alone = live(rows, hints)

        assert together == alone


def test_steps_that_start_again_are_seen(healthy):
    rows = healthy(120)

    raised, _ = live(rows, {}, [*range(75), *range(45)])

    assert [(place, rule) for place, rule, *_ in raised] == [(75, "RUN902")]


def looked_at(monkeypatch, rows):
    run = nabla.watch(quiet=True)
    (judge,) = run._run.session.detectors
    seen, take = [], judge.chart.take
    monkeypatch.setattr(
        judge.chart, "take", lambda record: seen.append(record.step) or take(record)
    )
    for row in rows:
        run.log(**row)
    run.finish()
    return seen


def test_hardly_a_row_of_a_healthy_run_is_looked_at(healthy, monkeypatch):
    assert len(looked_at(monkeypatch, healthy(1000))) < 60


def test_what_is_not_measured_may_be_said_to_be_none(healthy, monkeypatch):
    rows = [{**row, "val_loss": None, "accuracy": None} for row in healthy(1000)]

    assert len(looked_at(monkeypatch, rows)) < 60


def test_rows_before_an_evaluation_wait_too(healthy, monkeypatch):
    rows = healthy(1000)
    for row in rows[::20]:
        row["val_loss"] = row["loss"] + 0.1

    assert len(looked_at(monkeypatch, rows)) < 80


def test_of_the_first_rows_only_two_are_looked_at(healthy, monkeypatch):
    assert looked_at(monkeypatch, healthy(40)) == [0, 9]


def test_a_rate_that_warms_up_is_not_looked_at_in_every_row(healthy, monkeypatch):
    rows = healthy(40)
    for place, row in enumerate(rows):
        row["lr"] *= (place + 1) / 40

    assert len(looked_at(monkeypatch, rows)) < 15


def test_a_rate_that_runs_out_is_hardly_looked_at(healthy, monkeypatch):
    rows = healthy(1000)
    for place, row in enumerate(rows):
        row["lr"] *= 0.5 * (1.0 + math.cos(math.pi * place / len(rows)))

    assert len(looked_at(monkeypatch, rows)) < 20


@pytest.mark.parametrize("least", [45, 55])
def test_a_low_rate_is_told_of_at_the_same_row_though_it_is_not_looked_at(
    healthy, monkeypatch, least
):
    rows = healthy(100 + least)
    for row in rows[100:]:
        row["lr"] *= 0.001

    raised, _ = live(rows, {})

    assert [(place, rule) for place, rule, *_ in raised] == [(149, "RUN203")][: least >= 50]
    assert len(looked_at(monkeypatch, rows)) < 25


@pytest.mark.parametrize("hints", [{}, HINTS])
def test_a_signal_that_no_rule_needs_may_come_and_go(healthy, monkeypatch, hints):
    rows = healthy(300)
    for row in rows[::3]:
        row["param_norm"] = 1.0
    for row in rows[::7]:
        row["note"] = None

    assert looked_at(monkeypatch, rows) == looked_at(monkeypatch, healthy(300))


def test_what_is_held_out_is_never_taken_for_a_signal_that_nobody_needs(healthy):
    rows = healthy(200)
    for place, row in enumerate(rows):
        row["accuracy"] = 0.5
        row["val_loss"] = 2.0 + place / 50 if place % 10 == 9 else None
    rows = [dict(sorted(row.items())) for row in rows]

    raised, _ = live(rows, {})

    assert {rule for _, rule, *_ in raised} & {"RUN108", "RUN110", "RUN506"}


@pytest.mark.parametrize(
    "change",
    [{"update_ratio": 0.0}, {"lr": 0.0, "update_ratio": 0.0}, {"lr": 1e-9, "update_ratio": 0.0}],
)
def test_a_run_that_stands_still_is_looked_at_until_that_is_told(healthy, monkeypatch, change):
    rows = healthy(1000)
    for row in rows[200:]:
        row.update(change)

    assert len(looked_at(monkeypatch, rows)) < 120


def test_a_run_that_diverged_is_looked_at_until_that_is_told(healthy, monkeypatch):
    rows = healthy(1000)
    for row in rows[200:]:
        row.update(loss=row["loss"] + 9.0, update_ratio=0.2)

    assert len(looked_at(monkeypatch, rows)) < 150


def test_a_row_that_stands_out_is_looked_at(healthy, monkeypatch):
    rows = healthy(300)
    rows[205]["loss"] += 9.0
    rows[251]["update_ratio"] = 0.0

    assert {205, 251} <= set(looked_at(monkeypatch, rows))


def test_the_chart_is_the_same_with_rows_that_wait(healthy, monkeypatch):
    rows = healthy(437)
    rows[200]["grad_norm"] = 0.0

    def chart_of():
        judge = RunDetector(make_checks(), DiagnoseOptions())
        for step, row in enumerate(rows):
            list(judge.step(StepRecord(step=3 * step, time_s=0.0, signals=row)))
        list(judge.finish())
        chart = judge.chart
        return (
            chart.rows, chart.now, chart.lr, chart.update, chart.grad_norm, chart.signals,
            chart.distance, chart.stride, list(chart.losses), list(chart.gradients),
            list(chart.updates), list(chart.blocks), chart.best, chart.best_at, chart.recorded_step,
            chart.level.median, chart.level.noise, chart.level.highest, chart.level.lowest,
        )  # fmt: skip

    together = chart_of()
    monkeypatch.setattr(RowJudge, "_calm_for", lambda judge, names, room: None)

    assert together == chart_of()


def test_a_contract_that_comes_later_sees_every_row_from_then_on(healthy):
    pytest.importorskip("nabla_contracts")
    rows, run = healthy(60), nabla.watch(quiet=True)
    for row in rows[:45]:
        run.log(**row)
    run.hold([nabla.contracts.gradient.norm(max=100.0)])

    assert run.log(**rows[45]) == []
    (broken,) = run.log(**{**rows[46], "grad_norm": 200.0})
    assert (broken.rule[:3], broken.step) == ("CON", 46)


def test_rules_that_are_muted_bound_nothing(healthy):
    rows = healthy(200)
    spike(rows, random.Random(0))
    run = nabla.watch(quiet=True, mute=["RUN1", "RUN2", "RUN3", "RUN5"])

    assert [issue for row in rows for issue in run.log(**row)] == []
    assert run.finish().run.steps == 200


# ---------------------------------------------------------------------- bounds


def bounds(*ceilings):
    calm = Calm(("loss", "lr"))
    calm.at_most("loss", 10.0)
    calm.at_most("lr", 1.0)
    calm.at_least("lr", 0.1)
    calm.put_under([lambda chart, values=values: iter(values) for values in ceilings], None)
    return calm


@pytest.mark.parametrize(
    ("losses", "rates", "holds"),
    [
        ([1.0, 5.0], [0.5, 0.5], True),
        ([1.0, 5.1], [0.5, 0.5], False),
        ([1.0], [1.1], False),
        ([1.0], [0.09], False),
        ([-9.0], [0.1], True),
    ],
)
def test_rows_between_the_bounds_are_calm(losses, rates, holds):
    stretch = Stretch(range(len(losses)), {"loss": losses, "lr": rates})

    assert bounds([3.0, 5.0]).holds(stretch) is holds


def test_a_truer_bound_is_worked_out_only_for_a_loss_above_the_one_before():
    asked = []

    def ceilings():
        for value in (1.0, 2.0, 20.0):
            asked.append(value)
            yield value

    calm = bounds(ceilings())

    assert (calm.allows(0.5), asked) == (True, [1.0])
    assert (calm.allows(1.5), asked) == (True, [1.0, 2.0])
    assert (calm.allows(9.0), asked) == (True, [1.0, 2.0, 20.0])
    assert not calm.allows(10.5)


@pytest.mark.parametrize("seed", range(20))
def test_the_noise_of_a_level_is_no_less_than_what_its_order_says(seed):
    rng = random.Random(seed)
    scale = 10.0 ** rng.randint(-6, 6)
    blocks = [
        [scale * rng.choice([rng.gauss(0.0, 1.0), rng.random(), round(rng.random())]) + row * seed
         for row in range(10)]
        for _ in range(4)
    ]  # fmt: skip

    level = Level(blocks, [sorted(block) for block in blocks])

    assert 0.0 <= level.least_noise <= level.noise
    assert level.median == statistics.median(sum(blocks, []))


def test_a_bound_that_is_no_number_holds_no_row():
    calm = Calm(("loss",))
    calm.at_most("loss", math.nan)
    calm.at_most("loss", 5.0)
    calm.put_under([], None)

    assert not calm.allows(1.0)


@pytest.mark.parametrize(
    ("step", "signals", "taken"),
    [
        (8, {"loss": 1.0, "lr": 0.5}, True),
        (7, {"loss": 1.0, "lr": 0.5}, False),
        (8, {"lr": 0.5, "loss": 1.0}, True),
        (8, {"loss": 1.0}, False),
        (8, {"loss": 1.0, "lr": None}, False),
        (8, {"loss": math.nan, "lr": 0.5}, False),
        (8, {"loss": -math.inf, "lr": 0.5}, False),
        (8, {"loss": 3.1, "lr": 0.5}, False),
        (8, {"loss": 3.0, "lr": 0.5}, True),
    ],
)
def test_only_what_is_expected_is_taken(step, signals, taken):
    waiting = CalmRows()
    waiting.open(bounds([2.0, 3.0]), ("loss", "lr"), step=7, room=2)

    assert waiting.take(step, signals) is taken
    assert waiting.room == 2 - taken


# ---------------------------------------------------------------------- cost


def calls_of(function):
    """Count the calls of Python functions in a call."""
    count = 0

    def profile(frame, event, argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_the_first_rows_cost_little_more_than_the_later_ones(healthy):
    rows, run = healthy(400), nabla.watch(quiet=True)

    def log(start, stop):
        for place in range(start, stop):
            run.log(place, **rows[place])

    costs = [calls_of(lambda span=span: log(*span)) / 100 for span in ((0, 100), (300, 400))]

    assert costs[0] <= 2.0 * costs[1]
    assert costs[0] < 10.0


def test_a_row_costs_as_little_at_the_end_as_at_the_start(healthy):
    rows = healthy(12_000, scale=4000.0)
    run = nabla.watch(quiet=True)

    def log(start):
        for place in range(start, start + 2_000):
            run.log(place, **rows[place])

    costs = [calls_of(lambda start=start: log(start)) / 2_000 for start in range(0, 12_000, 2_000)]

    assert costs[-1] <= 1.1 * costs[1]
    assert max(costs[1:]) < 6.0  # two for the row itself, the rest is that of its block
