"""Logs of real runs, reduced to a few columns and digits: what must and must not be said of each.

The numbers are those of public runs; what is true of them was found by looking at the curves.
"""

import json
from pathlib import Path

import pytest

from nabla_core.host import default_host
from nabla_core.severity import Severity
from nabla_diagnose.engine import run_config
from nabla_diagnose.linting import LintRequest, lint_log

LOGS = Path(__file__).parent / "logs"
SHRUGS = {"RUN901", "RUN902"}


@pytest.fixture(scope="module")
def judged():
    request = LintRequest(config=run_config(default_host()))

    def judge(name):
        path = name if isinstance(name, Path) else LOGS / name
        return [run.report for run in lint_log(path, request)]

    return judge


def alarms(report):
    return [issue.rule for issue in report.issues if issue.severity > Severity.INFO]


def said(report):
    return [issue.rule for issue in report.issues if issue.rule not in SHRUGS]


def the(report, rule):
    (found,) = [issue for issue in report.issues if issue.rule == rule]
    return found


def test_memorising_speech_is_named_with_its_first_evaluation_as_best(judged):
    (report,) = judged("speech.trainer_state.json")

    assert said(report) == ["RUN108"]
    assert the(report, "RUN108").step == 1000
    assert "val_wer" in the(report, "RUN108").message


def test_a_classifier_whose_metrics_rise_to_the_end_gets_no_alarm(judged):
    (report,) = judged("classifier.trainer_state.json")

    assert alarms(report) == []


def test_a_run_that_gains_nothing_is_said_without_a_cause(judged):
    (report,) = judged("noise.trainer_state.json")

    assert said(report) == ["RUN107"]


def test_a_healthy_run_and_its_first_two_thirds_get_no_alarm(judged, tmp_path):
    state = json.loads((LOGS / "prefix.trainer_state.json").read_text())
    state["log_history"] = state["log_history"][:200]
    beginning = tmp_path / "trainer_state.json"
    beginning.write_text(json.dumps(state))

    for report in (*judged("prefix.trainer_state.json"), *judged(beginning)):
        assert said(report) == []


def test_a_loss_of_seven_parts_with_a_constant_rate_gets_no_alarm(judged):
    (report,) = judged("seven_parts.trainer_state.json")

    assert said(report) == []


def test_a_tail_of_nan_is_named_at_its_first_step_and_nothing_else(judged):
    (report,) = judged("nan_tail.metrics.csv")

    assert alarms(report) == ["RUN101"]
    assert the(report, "RUN101").step == 218


def test_a_healthy_loss_over_fifteen_decades_gets_no_alarm(judged):
    (report,) = judged("three_terms.metrics.csv")

    assert alarms(report) == []


def test_three_runs_in_one_file_are_judged_apart(judged):
    reports = judged("three_runs.results.csv")

    assert [report.run.steps for report in reports] == [10, 1, 1]
    assert [alarms(report) for report in reports] == [[], [], []]
    assert "3 runs" in the(reports[-1], "RUN902").message


def test_an_event_file_of_a_healthy_run_gets_no_alarm(judged):
    (report,) = judged("events.out.tfevents.0.detector")

    assert said(report) == []


def test_a_critic_loss_that_rises_is_no_alarm(judged):
    (report,) = judged("ddpg.progress.csv")

    assert said(report) == []


def test_overfitting_is_seen_in_sixteen_epochs(judged):
    (report,) = judged("small_text.csv")

    assert said(report) == ["RUN108"]
    assert the(report, "RUN108").step == 5


def test_two_epochs_are_too_few(judged):
    (report,) = judged("two_epochs.csv")

    assert [issue.rule for issue in report.issues] == ["RUN901"]
