"""What a person reads first: the verdict, and the causes with their chains."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from nabla_core.issue import Issue
from nabla_core.report import Cause, Report

from ..markup import Html, join, raw, tag
from ..text import steps, verdict, worst_first
from .issue_list import anchor, badge

__all__ = ["cause_section", "run_header", "verdict_section"]


def run_header(report: Report) -> Html:
    """Return the title and what was run."""
    run = report.run
    facts = [
        ("Command", run.command),
        ("Started", _clock(run.started_utc)),
        ("Optimizer steps", str(run.steps) if run.steps else ""),
        ("Duration", f"{run.duration_s:.1f} s" if run.duration_s else ""),
        ("Source", run.source),
        ("Device", run.device),
        ("Seed", "" if run.seed is None else str(run.seed)),
        ("Commit", (run.git_commit or "")[:12]),
    ]
    shown = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts if value]
    return tag("header", tag("h1", "nabla report"), tag("dl", *shown, class_="facts"))


def _clock(utc: str) -> str:
    """Return a time of ISO 8601 in words; anything else as it is."""
    day, _, time = utc.partition("T")
    return f"{day} {time.removesuffix('+00:00')} UTC" if time.endswith("+00:00") else utc


def verdict_section(report: Report) -> Html:
    """Return the verdict in one line, and the worst issue in a sentence."""
    kind = "failed" if report.failures else "passed" if report.rules_used else "unknown"
    parts = [tag("h2", verdict(report), id="verdict-title")]
    worst = worst_first(report)[:1]
    if worst and not report.causes:
        parts.append(
            tag(
                "p", badge(worst[0].severity), " ", tag("a", worst[0].message, href=_link(worst[0]))
            )
        )
    parts += [
        tag("p", f"{number} {what} did not fit into the session and were dropped.")
        for what, number in report.dropped.items()
        if number
    ]
    return tag(
        "section", *parts, id="verdict", class_=f"verdict {kind}", aria_labelledby="verdict-title"
    )


def cause_section(report: Report) -> Html:
    """Return the causes, the most likely first, each with its chain."""
    if not report.causes:
        return raw("")
    by_fingerprint = {issue.fingerprint: issue for issue in report.issues}
    items = [tag("li", *_cause(cause, by_fingerprint), class_="cause") for cause in report.causes]
    return tag(
        "section",
        tag("h2", "Why", id="causes-title"),
        tag("ol", *items),
        id="causes",
        aria_labelledby="causes-title",
    )


def _cause(cause: Cause, issues: Mapping[str, Issue]) -> Iterator[Html]:
    yield tag("p", cause.statement, class_="statement")
    origin = []
    if cause.where is not None and str(cause.where):
        origin.append(str(cause.where))
    if cause.step is not None:
        origin.append(f"step {cause.step}")
    rank = f"{cause.rule}, score {cause.score:.2g}"
    yield tag("p", ", ".join([*origin, rank]), class_="where")
    links = [issues[link] for link in cause.chain if link in issues]
    if links:
        chain = map(_chain_link, links, [None, *links])
        yield tag("ol", *chain, class_="chain", aria_label="What followed")
    said = {cause.statement.lower(), *(issue.message.lower() for issue in links)}
    supports = [line for line in cause.supports if not _is_said(line, said)]
    for title, sentences in (
        ("Speaks for it", supports),
        ("Speaks against it", cause.contradicts),
        ("Would confirm it", cause.tests),
    ):
        if sentences:
            found = [tag("li", sentence) for sentence in sentences]
            yield join([tag("h3", title), tag("ul", *found)])


def _is_said(line: str, said: Collection[str]) -> bool:
    """Whether the statement or the chain has told it already."""
    return any(line.lower().rstrip(".") in text for text in said)


def _chain_link(issue: Issue, before: Issue | None) -> Html:
    """Return one finding of a chain; the same found elsewhere in the same step did not follow."""
    alike = before is not None and (before.rule, before.step) == (issue.rule, issue.step)
    when = tag("span", f" {steps(issue)}", class_="where") if steps(issue) else raw("")
    named = tag("a", f"{issue.rule} {issue.name}", href=_link(issue))
    return tag(
        "li",
        *(badge(issue.severity), " ", named, when, tag("br"), issue.message),
        class_="alike" if alike else None,
    )


def _link(issue: Issue) -> str:
    return f"#{anchor(issue)}"
