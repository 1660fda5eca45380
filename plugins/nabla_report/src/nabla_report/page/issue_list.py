"""The evidence: every issue with its numbers, what to try, and what they do not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nabla_core.issue import Issue
from nabla_core.severity import Severity

from ..markup import Html, join, raw, tag
from ..text import evidence_rows, place, steps

__all__ = ["MOST_IN_FULL", "anchor", "badge", "issue_section", "line"]

MOST_IN_FULL = 100
"""The rest is listed in one line each, so that a page stays within its size."""

_OPEN_AT_FIRST = 5
_LONG = 24
_TOO_LONG = 240


def anchor(issue: Issue) -> str:
    """Return the name of an issue's place in the page."""
    return f"issue-{issue.fingerprint}"


def badge(severity: Severity) -> Html:
    """Return the severity as a coloured word."""
    return tag("span", severity.label, class_=f"badge {severity.label}")


def issue_section(issues: Sequence[Issue], title: str = "Issues") -> Html:
    """Return all issues, the worst first, with a filter that shows when JavaScript runs."""
    if not issues:
        return raw("")
    full = [_article(issue, number) for number, issue in enumerate(issues[:MOST_IN_FULL])]
    rest = [line(issue) for issue in issues[MOST_IN_FULL:]]
    more = raw("")
    if rest:
        note = f"{len(rest)} further issues, in short; the JSON report has their numbers"
        more = join([tag("h3", note), tag("ul", *rest, class_="short")])
    return tag(
        "section",
        tag("h2", title, id="issues-title"),
        _filter(issues),
        *full,
        more,
        id="issues",
        aria_labelledby="issues-title",
    )


def _filter(issues: Sequence[Issue]) -> Html:
    present = sorted({issue.severity for issue in issues}, reverse=True)
    boxes = [
        tag(
            "label",
            tag("input", type="checkbox", name="severity", value=severity.label, checked=True),
            badge(severity),
        )
        for severity in present
    ]
    search = tag("input", type="search", id="filter-text", autocomplete="off")
    return tag(
        "form",
        tag("label", "Find in issues", for_="filter-text"),
        search,
        tag("fieldset", tag("legend", "Severities"), *boxes),
        tag("button", "Open all", type="button", data_toggle="open"),
        tag("button", "Close all", type="button", data_toggle="close"),
        tag("output", f"{len(issues)} of {len(issues)} shown", role="status", id="filter-count"),
        id="filter",
        role="search",
        hidden=True,
    )


def _article(issue: Issue, number: int) -> Html:
    title = tag("h3", tag("code", issue.rule), " ", issue.name)
    where = ", ".join(part for part in (place(issue), steps(issue)) if part)
    summary = tag("summary", badge(issue.severity), title, tag("span", where, class_="where"))
    body = tag("div", *_body(issue), class_="body")
    return tag(
        "article",
        tag("details", summary, body, open=number < _OPEN_AT_FIRST),
        id=anchor(issue),
        class_=f"issue {issue.severity.label}",
        data_severity=issue.severity.label,
    )


def _body(issue: Issue) -> Iterator[Html]:
    yield tag("p", issue.message, class_="message")
    rows = list(evidence_rows(issue.evidence))
    if rows:
        yield _numbers(rows)
    facts = [("Try", issue.suggestion), ("Not shown", issue.limitation)]
    if issue.phase:
        facts.append(("Phase", issue.phase))
    if issue.confidence < 1.0:
        facts.append(("Confidence", f"{issue.confidence:.2g}"))
    if issue.artifact:
        facts.append(("Stored", issue.artifact))
    shown = [tag("dt", name) + tag("dd", text_of) for name, text_of in facts if text_of]
    yield tag("dl", *map(raw, shown))
    reproduction = issue.reproduction
    if reproduction is not None and reproduction.command:
        yield tag("p", "See it again:")
        yield tag("pre", tag("code", reproduction.command))
    if reproduction is not None and reproduction.script:
        script = tag("pre", tag("code", reproduction.script))
        yield tag("details", tag("summary", "A script that shows it"), script)
    yield tag("p", "More: ", tag("code", f"nabla rule {issue.rule}"), class_="more")


def _numbers(rows: Sequence[tuple[str, str, str]]) -> Html:
    limited = any(limit for _, _, limit in rows)
    names = ("measured", "value", "limit") if limited else ("measured", "value")
    head = tag("tr", *[tag("th", name, scope="col") for name in names])
    body = []
    for name, value, limit in rows:
        cells = [tag("th", name, scope="row"), _value(value)]
        if limited:
            cells.append(tag("td", limit, class_="value"))
        body.append(tag("tr", *cells))
    table = tag("table", tag("thead", head), tag("tbody", *body))
    return tag("div", table, class_="scroll", tabindex=0, role="group", aria_label="Numbers")


def _value(value: str) -> Html:
    if len(value) <= _LONG:
        return tag("td", value, class_="value")
    if len(value) <= _TOO_LONG:
        return tag("td", value, class_="words")
    shown = tag("summary", f"{value[:_LONG]}… ({len(value)} characters)")
    return tag("td", tag("details", shown, value), class_="words")


def line(issue: Issue, before: str = "") -> Html:
    """Return an issue as an item of a list, with a few words before its place."""
    where = ", ".join(part for part in (place(issue), steps(issue)) if part)
    return tag(
        "li",
        badge(issue.severity),
        " ",
        tag("code", issue.rule),
        f" {before}{where} – {issue.message}",
        id=anchor(issue),
        class_="issue",
        data_severity=issue.severity.label,
    )
