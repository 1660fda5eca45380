"""The ranking of a run follows the causes that were found."""

from dataclasses import replace

from nabla_causal.explaining import explain_issues
from nabla_core.report import Report
from nabla_core.severity import Severity
from nabla_diagnose.run_report import RunReport


def ranked(issues, causes=()):
    report = RunReport.of(Report(issues=tuple(issues), causes=tuple(causes)))
    return [issue.rule for issue in report.ranked]


def test_a_cause_leads_its_own_chain(finding):
    issues = [
        finding("RUN901", severity=Severity.INFO),
        finding("RUN107", step=0),
        finding("RUN402", step=9),
        finding("RUN302", step=12),
    ]

    causes = explain_issues(issues).causes()

    assert ranked(issues, causes)[0] == causes_of(issues, causes[0])[0]
    assert ranked(issues, causes)[-1] == "RUN901"
    assert sorted(ranked(issues, causes)) == sorted(ranked(issues))


def test_without_causes_the_order_is_that_of_the_rules(finding):
    issues = [finding("RUN105", step=20), finding("RUN204", step=18)]

    assert ranked(issues) == ["RUN204", "RUN105"]


def test_an_issue_that_no_cause_holds_comes_after(finding):
    issues = [finding("RUN204", step=18), finding("RUN105", step=20)]
    (cause, *_) = explain_issues(issues).causes()

    assert ranked(issues, [replace(cause, chain=(issues[1].fingerprint,))]) == ["RUN105", "RUN204"]


def causes_of(issues, cause):
    rules = {issue.fingerprint: issue.rule for issue in issues}
    return [rules[fingerprint] for fingerprint in cause.chain]
