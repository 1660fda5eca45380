"""Summaries of earlier runs: kept small, read with care, compared only with their like."""

import json
import math

import pytest

from nabla_core.records import StepRecord
from nabla_diagnose.history.comparing import compare
from nabla_diagnose.history.store import HistoryStore, project_of, run_id
from nabla_diagnose.history.summary import RunSummary, SummaryBuilder
from nabla_diagnose.history.table import table_lines


def summary(number=0, level=1.0, **changes):
    values = {
        "id": f"{number:016x}",
        "project": "vision",
        "source": f"logs/{number}.csv",
        "logged_utc": f"2024-01-{number + 1:02}T00:00:00+00:00",
        "rows": 1000,
        "last_step": 999,
        "loss_column": "loss",
        "first_loss": 2.5,
        "best_loss": 0.1,
        "best_step": 900,
        "last_loss": 0.2,
        "best_val_loss": math.inf,
        "curve": ((1, 2.5), (10, 2.0 * level), (100, 1.0 * level), (500, 0.5 * level)),
        "rules": ("RUN108",),
    }
    return RunSummary(**{**values, **changes})


@pytest.fixture
def store(tmp_path):
    return HistoryStore(tmp_path / "history")


def test_a_summary_survives_being_stored(store):
    kept = summary(last_loss=math.nan)
    store.keep(kept)

    (found,) = store.load()

    assert math.isnan(found.last_loss)
    assert found.to_dict() == kept.to_dict()


def test_a_log_that_is_judged_again_replaces_its_summary(store):
    store.keep(summary(rows=10))
    store.keep(summary(rows=20))

    assert [found.rows for found in store.load()] == [20]


def test_runs_come_in_the_order_in_which_they_were_logged(store):
    for number in (3, 1, 2):
        store.keep(summary(number))

    assert [found.source for found in store.load()] == ["logs/1.csv", "logs/2.csv", "logs/3.csv"]


def test_only_runs_of_the_project_are_given(store):
    store.keep(summary(1))
    store.keep(summary(2, project="speech"))

    assert len(store.load()) == 2
    assert [found.project for found in store.load("speech")] == ["speech"]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", "null", '{"schema_version": "9.0"}', "[" * 5000, "x" * 100_000],
)
def test_what_is_no_summary_is_passed_over(store, content):
    store.keep(summary())
    (store.folder / "foreign.json").write_text(content)

    assert len(store.load()) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("curve", "no list"), ("curve", [[1]]), ("rows", "many"), ("rules", None), ("rows", "inf")],
)
def test_a_damaged_summary_is_passed_over(store, key, value):
    store.folder.mkdir()
    stored = {**summary().to_dict(), key: value}
    (store.folder / "damaged.json").write_text(json.dumps(stored))

    assert store.load() == []


def test_the_folder_stays_bounded(store, monkeypatch):
    monkeypatch.setattr("nabla_diagnose.history.store._MAX_RUNS", 5)
    for number in range(9):
        store.keep(summary(number))

    assert len(list(store.folder.iterdir())) == 5


def test_a_builder_keeps_the_curve_at_round_steps_and_stays_small():
    builder = SummaryBuilder()
    for step in range(100_000):
        builder.take(StepRecord(step=step, time_s=0.0, signals={"loss": 1.0 / (step + 1)}))

    assert [step for step, _ in builder.curve[:7]] == [1, 2, 5, 10, 20, 50, 100]
    assert len(builder.curve) <= 20
    assert builder.rows == 100_000
    assert builder.best_step == 99_999


def test_a_builder_keeps_a_broken_end():
    builder = SummaryBuilder()
    for step, loss in enumerate([2.0, 1.0, math.nan]):
        builder.take(StepRecord(step=step, time_s=0.0, signals={"loss": loss, "val_loss": 3.0}))

    assert (builder.first_loss, builder.best_loss, builder.best_step) == (2.0, 1.0, 1)
    assert math.isnan(builder.last_loss)
    assert builder.best_val_loss == 3.0


def test_a_run_far_from_its_earlier_ones_is_told_with_the_distance():
    earlier = [summary(number, level=1.0 + 0.02 * number) for number in range(8)]

    latest, *_ = compare(summary(20, level=2.0), earlier, last=10)

    assert latest.step == 500
    assert latest.runs == 8
    assert latest.deviations > 8
    assert "above the median" in latest.line()


def test_a_run_like_its_earlier_ones_is_near():
    earlier = [summary(number, level=1.0 + 0.02 * number) for number in range(8)]

    assert abs(compare(summary(20, level=1.07), earlier, last=10)[0].deviations) < 1


@pytest.mark.parametrize(
    "others",
    [
        [summary(number) for number in range(4)],
        [summary(number, loss_column="other") for number in range(8)],
        [summary(number, first_loss=50.0) for number in range(8)],
        [summary(number, curve=()) for number in range(8)],
        [summary(20)] * 8,
    ],
)
def test_too_few_or_unlike_runs_are_not_compared(others):
    assert compare(summary(20), others, last=10) == []


def test_only_the_last_runs_count():
    earlier = [summary(number, level=5.0) for number in range(10)]
    earlier += [summary(10 + number) for number in range(10)]

    assert compare(summary(30), earlier, last=10)[0].earlier == 0.5


def test_the_project_is_the_folder_with_git(tmp_path):
    (tmp_path / "vision" / ".git").mkdir(parents=True)
    (tmp_path / "vision" / "logs").mkdir()

    assert project_of(tmp_path / "vision" / "logs") == "vision"


def test_the_same_log_has_the_same_name(tmp_path):
    path = tmp_path / "a.csv"

    assert run_id("p", path, 1) == run_id("p", tmp_path / "b" / ".." / "a.csv", 1)
    assert len({run_id("p", path, 1), run_id("q", path, 1), run_id("p", path, 2)}) == 3


def test_the_table_shows_broken_losses_and_rules():
    lines = list(table_lines([summary(last_loss=math.nan)]))

    assert "nan" in lines[1]
    assert "[RUN108]" in lines[1]
    assert "nabla lint" in next(iter(table_lines([])))
