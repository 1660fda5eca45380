"""What changed between two reports."""

import json
from dataclasses import replace

import pytest

import nabla_report
from nabla_core import Severity
from nabla_core.cli.shell import run_shell
from nabla_core.errors import CheckFailed, ReportFormatError
from nabla_core.issue import Location
from nabla_core.report import AllowedIssue, Report


@pytest.fixture
def issue(make_rule):
    def make(rule="ACM101", module="head", severity=Severity.HIGH, **changes):
        found = make_rule(rule, severity=severity).issue("m", where=Location(module=module))
        return replace(found, **changes)

    return make


def report_of(*issues, rules=("ACM101", "ACM102"), **changes):
    return Report(issues=issues, rules_used=rules, **changes)


def counts(comparison):
    names = ("new", "fixed", "unchanged", "changed", "allowed", "undecided")
    return {name: len(getattr(comparison, name)) for name in names if getattr(comparison, name)}


def test_the_same_rule_at_the_same_place_is_the_same_issue(issue):
    old = report_of(issue(step=3, message="loss 1", where=Location(module="head", line=3)))
    new = report_of(issue(step=9, message="loss 2", where=Location(module="head", line=80)))

    assert counts(nabla_report.compare(old, new)) == {"unchanged": 1}


def test_new_fixed_and_changed_are_told_apart(issue):
    old = report_of(issue(module="a"), issue(module="b"), issue(module="c"))
    new = report_of(issue(module="b", severity=Severity.LOW), issue(module="c"), issue(module="d"))

    comparison = nabla_report.compare(old, new)

    assert counts(comparison) == {"new": 1, "fixed": 1, "unchanged": 1, "changed": 1}
    assert comparison.new[0].where.module == "d"
    assert comparison.fixed[0].where.module == "a"
    assert comparison.changed[0].old is Severity.HIGH


def test_an_issue_whose_rule_was_not_evaluated_again_is_not_called_fixed(issue):
    comparison = nabla_report.compare(
        report_of(issue("ACM101"), issue("ACM102")), report_of(rules=("ACM102",))
    )

    assert counts(comparison) == {"fixed": 1, "undecided": 1}
    assert "not decided any more (1)" in comparison.format()


def test_an_issue_that_is_allowed_now_is_not_called_fixed(issue):
    allowed = AllowedIssue(issue=issue(), reason="known", source="baseline")

    comparison = nabla_report.compare(report_of(issue()), report_of(allowed=(allowed,)))

    assert counts(comparison) == {"allowed": 1}


def test_a_rule_that_the_old_report_did_not_evaluate_is_named(issue):
    comparison = nabla_report.compare(report_of(rules=()), report_of(issue()))

    assert comparison.first_evaluated == ("ACM101",)


@pytest.mark.parametrize(
    ("severity", "fail_on", "passed"),
    [
        (Severity.MEDIUM, "high", True),
        (Severity.HIGH, "high", False),
        (Severity.LOW, "low", False),
        (Severity.INFO, "low", True),
    ],
)
def test_only_new_issues_at_the_limit_fail(issue, severity, fail_on, passed):
    old = report_of(issue(module="old", severity=Severity.CRITICAL))
    new = report_of(*old.issues, issue(module="new", severity=severity))

    comparison = nabla_report.compare(old, new, fail_on=fail_on)

    assert comparison.passed is passed and comparison.exit_code == (0 if passed else 1)


@pytest.mark.parametrize(
    ("was", "now", "passed"),
    [
        (Severity.MEDIUM, Severity.HIGH, False),
        (Severity.HIGH, Severity.CRITICAL, True),
        (Severity.HIGH, Severity.LOW, True),
    ],
)
def test_an_issue_that_rises_over_the_limit_fails(issue, was, now, passed):
    comparison = nabla_report.compare(
        report_of(issue(severity=was)), report_of(issue(severity=now)), fail_on=Severity.HIGH
    )

    assert comparison.passed is passed


def test_a_report_beside_itself_has_nothing_new(report):
    comparison = nabla_report.compare(report, report)

    assert counts(comparison) == {"unchanged": 3}
    comparison.raise_if_failed()


def test_a_failed_comparison_raises_with_its_text(issue):
    with pytest.raises(CheckFailed, match=r"new \(1\)"):
        nabla_report.compare(report_of(), report_of(issue())).raise_if_failed()


def test_a_report_and_its_stored_form_are_the_same_even_if_redacted(issue, tmp_path):
    found = report_of(issue(where=Location(file="/home/jane/train.py", module="m")))
    path = tmp_path / "old.json"
    path.write_text(nabla_report.dumps(found))

    assert counts(nabla_report.compare(path, found)) == {"unchanged": 1}


@pytest.fixture
def stored(issue, tmp_path):
    def store(name, *issues):
        path = tmp_path / name
        path.write_text(nabla_report.dumps(report_of(*issues)))
        return str(path)

    return store


def test_the_command_exits_with_1_when_there_is_a_new_issue(stored, issue, capsys):
    old, new = stored("old.json", issue(module="a")), stored("new.json", issue(module="b"))

    assert run_shell(["compare", old, new]) == 1
    text = capsys.readouterr().out
    assert "new (1)" in text and "fixed (1)" in text
    assert text.splitlines()[-1].startswith("1 new issue at or above high (1 new, 1 fixed")
    assert run_shell(["compare", old, new, "--fail-on", "critical"]) == 0
    assert run_shell(["compare", old, old]) == 0


def test_the_command_writes_json_and_markdown(stored, issue, tmp_path, capsys):
    old, new = stored("old.json"), stored("new.json", issue())
    target = tmp_path / "compare.md"

    command = ["compare", old, new, "--format", "json", "--format", f"markdown={target}"]
    assert run_shell(command) == 1

    assert json.loads(capsys.readouterr().out)["passed"] is False
    assert "| new | high | `ACM101 rule-acm101` |" in target.read_text()


def test_mistakes_are_told_with_the_next_step(stored, tmp_path, capsys):
    old = stored("old.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{}")

    assert run_shell(["compare", old, str(broken)]) == 2
    assert run_shell(["compare", old, old, "--format", "jsn"]) == 2
    assert "did you mean" in capsys.readouterr().err
    with pytest.raises(ReportFormatError):
        nabla_report.compare(old, tmp_path / "none.json")
