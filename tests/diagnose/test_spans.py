"""Rows judged many at once: the issues are those of row by row."""

import math
import random

import pytest

import nabla
from nabla_core.records import StepRecord
from nabla_diagnose.checks.roster import make_checks
from nabla_diagnose.detector import RunDetector
from nabla_diagnose.engine import lint_records
from nabla_diagnose.history.summary import SummaryBuilder
from nabla_diagnose.options import DiagnoseOptions
from nabla_diagnose.readers.span import Span, spans_of


def spike(rows, rng):
    for _ in range(4):
        row = rows[rng.randrange(100, len(rows))]
        row["loss"] += 5.0
        row["grad_norm"] = 40.0


def shift(rows, rng):
    for row in rows[rng.randrange(100, len(rows)) :]:
        row["loss"] += 2.0


def rate_jump(rows, rng):
    start = rng.randrange(50, len(rows))
    for row in rows[start:]:
        row["lr"] *= 20.0
        row["loss"] += 3.0


def nan(rows, rng):
    for row in rows[rng.randrange(30, len(rows)) :]:
        row["loss"] = math.nan


def rate_gone(rows, rng):
    start = rng.randrange(20, len(rows))
    for row in rows[start:]:
        row["lr"] *= rng.choice([1e-3, 0.0])


def no_updates(rows, rng):
    for row in rows[rng.randrange(5, len(rows)) :]:
        row["update_ratio"] = 0.0


def large_updates(rows, rng):
    for row in rows[3:60]:
        row["update_ratio"] = 0.5
        row["loss"] = 9.0


def holes(rows, rng):
    for row in rows:
        if rng.random() < 0.05:
            row.pop(rng.choice(["loss", "grad_norm", "lr"]))
        if rng.random() < 0.05:
            row["val_loss"] = row.get("loss", 1.0) + 0.2
        if rng.random() < 0.01:
            row["grad_norm"] = rng.choice([math.inf, 0.0, math.nan])


def rivals(rows, rng):
    for row in rows[rng.randrange(len(rows)) :]:
        row["d_loss"] = 1e-4 * rng.random()


def climb(rows, rng):
    for index, row in enumerate(rows):
        row["loss"] = 1.0 + 0.02 * index + 0.01 * rng.random()


FAULTS = (
    spike, shift, rate_jump, nan, rate_gone, no_updates, large_updates, holes, rivals, climb,
)  # fmt: skip


def records_of(rows):
    return [
        StepRecord(step=index, time_s=float(index), signals=row) for index, row in enumerate(rows)
    ]


def told(issues):
    return [(issue.rule, issue.step, issue.message, issue.severity) for issue in issues]


def detector(hints):
    return RunDetector(make_checks(), DiagnoseOptions(**hints))


def by_row(records, hints):
    judge = detector(hints)
    found = [issue for record in records for issue in judge.step(record)]
    return told([*found, *judge.finish()])


def by_span(records, hints, rng):
    judge = detector(hints)
    found = []
    start = 0
    while start < len(records):
        stop = start + rng.randint(1, 300)
        for part in spans_of(records[start:stop]):
            found += judge.span(part)
        start = stop
    return told([*found, *judge.finish()])


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_the_issues_are_those_of_row_by_row(healthy, fault):
    spoke = False
    for seed in range(3):
        rng = random.Random(seed)
        rows = healthy(rng.randint(120, 700), seed=seed)
        if fault is not None:
            fault(rows, rng)
        if seed % 3 == 2:
            rng.choice(FAULTS)(rows, rng)
        hints = {"loss": "cross_entropy", "classes": 8} if seed % 2 else {}
        records = records_of(rows)

        found = by_row(records, hints)

        assert by_span(records, hints, rng) == found
        spoke = spoke or bool(found)
    assert spoke or fault in (None, holes, rivals)


def test_most_rows_of_a_healthy_run_are_passed_over(healthy, monkeypatch):
    looked_at = []
    judge = detector({})
    take = judge.chart.take
    monkeypatch.setattr(judge.chart, "take", lambda row: looked_at.append(row) or take(row))
    for part in spans_of(records_of(healthy(2000))):
        list(judge.span(part))

    assert 10 <= len(looked_at) < 500


def test_live_and_lint_say_the_same(healthy):
    rows = healthy(400)
    shift(rows, random.Random(1))
    run = nabla.watch(quiet=True)
    live = [issue for index, row in enumerate(rows) for issue in run.log(index, **row)]

    assert told(live) == told(lint_records(records_of(rows)).issues)
    assert live


def test_a_span_gives_its_records_back(healthy):
    rows = healthy(600)
    holes(rows, random.Random(0))
    records = records_of(rows)

    back = [record for part in spans_of(records) for record in part.records()]

    assert [(record.step, record.time_s, record.signals) for record in back] == [
        (record.step, record.time_s, record.signals) for record in records
    ]


def test_layers_and_steps_that_start_again_stand_apart():
    records = [
        StepRecord(step=0, time_s=0.0, signals={"loss": 1.0}),
        StepRecord(step=1, time_s=1.0, signals={"loss": 1.0}, layers={"x": [1.0]}, layout=("a",)),
        StepRecord(step=2, time_s=2.0, signals={"loss": 1.0}),
        StepRecord(step=0, time_s=3.0, signals={"loss": 1.0}),
    ]

    parts = list(spans_of(records))

    assert [len(part) if isinstance(part, Span) else "record" for part in parts] == [
        1, "record", 1, 1,
    ]  # fmt: skip


def test_a_summary_of_spans_is_that_of_records(healthy):
    rows = healthy(900)
    holes(rows, random.Random(3))
    records = records_of(rows)
    one, many = SummaryBuilder(), SummaryBuilder()
    for record in records:
        one.take(record)
    for part in spans_of(records):
        many.take_span(part)

    for name in ("rows", "last_step", "first_loss", "best_loss", "best_step", "last_loss", "curve"):
        assert getattr(one, name) == getattr(many, name), name
    assert one.best_val_loss == many.best_val_loss
