import json
from pathlib import Path

import pytest

pytest.importorskip("wandb", reason="wandb is not installed: its tests are left out")

import wandb as client

import nabla_trackers


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """A real run that writes into a folder and to no server."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    with client.init(project="nabla", dir=str(tmp_path)) as run:
        yield run


@pytest.fixture
def alerts(offline, monkeypatch):
    """What the real client was asked to tell somebody."""
    told = []
    real = type(offline).alert

    def alert(self, title, text, level=None, wait_duration=None):
        told.append((title, text, level))
        return real(self, title, text, level, wait_duration)

    monkeypatch.setattr(type(offline), "alert", alert)
    return told


def rows_of(run, name):
    (path,) = Path(run.dir).rglob(f"{name}_*.table.json")
    return json.loads(path.read_text())["data"]


def test_the_active_run_gets_alerts_a_summary_and_tables(offline, alerts, watched):
    report = watched(nabla_trackers.wandb())

    assert report.problems == ()
    ((title, text, level),) = alerts
    assert title.startswith("RUN101 ")
    assert report.issues[0].message in text
    assert level == "ERROR"
    assert offline.summary["nabla/passed"] is False
    assert offline.summary["nabla/issues/high"] == 1
    (issue,) = rows_of(offline, "issues")
    assert issue[0] == "RUN101"
    assert report.issues[0].message in issue
    assert rows_of(offline, "curves")[:2] == [["nabla/loss", 0, 1.0], ["nabla/loss", 1, 0.5]]


def test_the_steps_of_the_persons_own_run_are_not_moved(offline, alerts, watched):
    offline.log({"mine": 1.0}, step=4)
    watched(nabla_trackers.wandb(offline))

    assert offline.step == 4


def test_below_the_limit_nobody_is_alerted(offline, alerts, watched):
    from nabla_core import Severity

    report = watched(nabla_trackers.wandb(alert_from=Severity.CRITICAL))

    assert [issue.severity for issue in report.issues] == [Severity.HIGH]
    assert alerts == []
    assert report.problems == ()


def test_what_is_found_before_the_run_starts_waits_for_it(offline, alerts, hostile, monkeypatch):
    issue, report = hostile
    alert = nabla_trackers.wandb()
    with monkeypatch.context() as before_the_start:
        before_the_start.setattr(client, "run", None)
        alert(issue)
    assert alerts == []

    alert.take_report(report)

    assert len(alerts) == 1


def test_hostile_texts_do_not_break_the_run(offline, alerts, hostile):
    issue, report = hostile
    alert = nabla_trackers.wandb(offline)
    alert(issue)
    alert.take_report(report)

    ((title, text, _),) = alerts
    assert "\x1b" not in title + text
    assert len(text) <= 2_000


def test_a_run_that_never_starts_is_told(tmp_path, watched, monkeypatch):
    monkeypatch.setattr(client, "run", None)
    report = watched(nabla_trackers.wandb())

    (problem,) = report.problems
    assert "no W&B run is active" in problem.message
