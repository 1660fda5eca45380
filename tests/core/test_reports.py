import json
import math
from dataclasses import replace

import pytest

from nabla_core import Location, Quantity, Severity
from nabla_core.errors import InputError, ReportFormatError
from nabla_core.files import check_writable, read_text, write_text
from nabla_core.issue import Reproduction
from nabla_core.problem import Problem
from nabla_core.report import (
    AllowedIssue,
    Cause,
    NotEvaluated,
    Report,
    RunInfo,
    Section,
)
from nabla_core.report_reader import read_report
from nabla_core.reporters import console, github
from nabla_core.reporters import json as json_reporter
from nabla_core.reporters.style import Style


@pytest.fixture
def report(make_rule):
    issue = make_rule(severity=Severity.HIGH).issue(
        "Loss was nan, limit finite.",
        step=4,
        phase="loss",
        where=Location(module="net.0", file="train.py", line=7, rank=0, sample=3),
        loss=Quantity(value=math.nan, limit=1.0),
        optimizer="SGD",
        steps=3,
    )
    issue = replace(
        issue, count=5, last_step=9, reproduction=Reproduction(seed=1, command="python train.py")
    )
    return Report(
        run=RunInfo(command="train.py", steps=10, versions={"nabla-core": "0.1.0"}, seed=7),
        issues=(issue, make_rule("ACM102", name="small").issue("A small thing.")),
        rules_used=("ACM101", "ACM102"),
        not_evaluated=(NotEvaluated(rule="ACM103", reason="needs lr"),),
        allowed=(AllowedIssue(issue=issue, reason="known", source="baseline"),),
        stale_baseline=("ACM104 x",),
        causes=(
            Cause(
                rule="CAU101",
                chain=("a",),
                score=0.5,
                statement="because",
                tests=("t",),
                where=Location(module="net.0"),
                step=3,
                supports=("s",),
                contradicts=("c",),
            ),
        ),
        sections=(Section(title="Extra", lines=("one",)),),
        problems=(Problem(rule="NAB004", plugin="x", message="m", hint="h"),),
        dropped={"issues": 2},
        exit_code=1,
    )


def test_a_report_survives_json(report, tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json_reporter.render(report, Style()))
    again = read_report(path)

    assert again.to_dict() == report.to_dict()
    assert math.isnan(again.issues[0].evidence["loss"].value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "no schema_version"),
        ('{"schema_version": "2.0"}', "use the nabla that wrote it"),
        ('{"schema_version": "1.0", "issues": 3}', "not a list"),
        ('{"schema_version": "1.0", "issues": [{"rule": 3}]}', "rule is not text"),
        ('{"schema_version": "1.0", "issues": [{"severity": "fatal"}]}', "unknown severity"),
        ('{"schema_version": "1.0", "issues": [{"severity": "low", "phase": "x"}]}', "phase"),
        ('{"schema_version": "1.0", "run": {"steps": "many"}}', "expected a number"),
        ('{"schema_version": "1.0", "run": {"steps": Infinity}}', "damaged"),
    ],
)
def test_hostile_reports_get_a_typed_error(tmp_path, content, reason):
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(ReportFormatError, match=reason):
        read_report(path)


def test_a_newer_minor_schema_is_read(tmp_path):
    path = tmp_path / "r.json"
    path.write_text('{"schema_version": "1.7", "issues": [], "new_field": {"x": [1]}}')
    assert read_report(path).issues == ()


def test_many_reasons_for_not_evaluating_are_counted_and_named_on_demand(report):
    entries = tuple(NotEvaluated(rule=f"ACM{n}", reason=f"needs fact {n}") for n in range(103, 108))
    report = replace(report, not_evaluated=entries)
    short, long = (console.render(report, Style(verbose=verbose)) for verbose in (0, 1))
    assert "not evaluated: 3 more rules" in short and "ACM107" not in short
    assert "not evaluated: ACM107 – needs fact 107" in long and "more rules" not in long


def test_the_console_shows_the_worst_first_with_its_numbers(report):
    text = console.render(report, Style())
    assert text.index("ACM101") < text.index("ACM102")
    for part in (
        "HIGH     ACM101 rule-acm101  train.py:7, module net.0, sample 3, rank 0, steps 4 to 9 (5",
        "Loss was nan, limit finite.",
        "measured   loss = nan (limit 1); optimizer = SGD; steps = 3",
        "try        Mend it.",
        "not shown  Silent without facts.",
        "see again  python train.py",
        "more       nabla rule ACM101",
        "Cause: because",
        "allowed (baseline): ACM101",
        "remove from the baseline: ACM104 x",
        "not evaluated: ACM103 – needs lr",
        "2 issues (1 high, 1 medium); 2 rules evaluated",
    ):
        assert part in text
    assert "\x1b" not in text
    assert "\x1b[31m" in console.render(report, Style(color=True))


def test_a_report_without_rules_does_not_look_clean():
    assert "nothing was checked" in console.render(Report(), Style())
    assert "no issues; 1 rule evaluated" in console.render(Report(rules_used=("X",)), Style())


def test_names_cannot_steer_a_terminal(make_rule):
    issue = make_rule().issue("bad \x1b[2J\x07 \u202e name", where=Location(module="\x1b]0;x\x07"))
    text = console.render(Report(issues=(issue,)), Style())
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_github_annotations_are_escaped(make_rule):
    issue = make_rule(severity=Severity.CRITICAL).issue(
        "100% wrong\n::error::fake", where=Location(file="a,b:c.py", line=3)
    )
    (line,) = github.render(Report(issues=(issue,)), Style()).splitlines()
    assert line.startswith(
        "::error title=ACM101 rule-acm101,file=a%2Cb%3Ac.py,line=3::100%25 wrong"
    )
    assert "%0A::error" in line


def test_github_counts_what_it_would_not_show(make_rule):
    issues = tuple(make_rule().issue("m", where=Location(module=str(i))) for i in range(13))
    lines = github.render(Report(issues=issues), Style()).splitlines()
    assert len(lines) == 11
    assert "3 more issues" in lines[-1]


def test_results_print_themselves_and_escape_html(report, capsys):
    report.print()
    assert "ACM101" in capsys.readouterr().out
    page = Report(run=RunInfo(command="<b>"))._repr_html_()
    assert "&lt;b&gt;" in page or "&amp;lt;b&amp;gt;" in page  # a page inside of a page
    assert "<b>" not in page


def test_json_is_redacted(make_rule, monkeypatch):
    issue = make_rule().issue("token=abcdef123456 in /home/jane/x.py", where=Location(module="m"))
    text = json_reporter.render(Report(issues=(issue,)), Style())
    assert "abcdef123456" not in text
    assert "jane" not in text
    assert json.loads(text)["issues"][0]["message"] == "token=[redacted] in ~/x.py"


def test_files_are_written_at_once_or_not_at_all(tmp_path):
    target = tmp_path / "a.txt"
    write_text(target, "old")
    write_text(target, "new")
    assert read_text(target) == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_bad_paths_are_told_before_work_is_done(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        check_writable(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        check_writable(tmp_path / "none" / "x.json")
    with pytest.raises(InputError, match="no such file"):
        read_text(tmp_path / "none")
    with pytest.raises(InputError, match="not a regular file"):
        read_text(tmp_path)
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        read_text(tmp_path / "b")
    with pytest.raises(InputError, match="at most 1"):
        read_text(tmp_path / "b", max_bytes=1)
