"""What is not a finding: allowed issues, rules that could not be decided, problems, versions."""

from __future__ import annotations

from nabla_core.report import Report

from ..markup import Html, join, raw, tag
from ..text import place

__all__ = ["footer", "remainder_section"]


def remainder_section(report: Report) -> Html:
    """Return what was allowed, what was not evaluated, and what is wrong with nabla itself."""
    parts = [
        _listing(
            "Allowed",
            [
                f"{entry.issue.rule} {entry.issue.name} {place(entry.issue)} – {entry.reason} "
                f"({entry.source})"
                for entry in report.allowed
            ],
        ),
        _listing("No longer seen: remove from the baseline", report.stale_baseline),
        _listing("Problems of nabla or a plugin", [
            f"{problem.rule} {problem.plugin}: {problem.message} {problem.hint}"
            for problem in report.problems
        ]),
        _undecided(report),
        _listing("Rules evaluated", report.rules_used),
    ]  # fmt: skip
    if not any(parts):
        return raw("")
    return tag(
        "section",
        tag("h2", "Not findings", id="rest-title"),
        *parts,
        id="rest",
        aria_labelledby="rest-title",
    )


def footer(report: Report) -> Html:
    """Return the versions of everything that took part."""
    versions = [f"{name} {version}" for name, version in sorted(report.run.versions.items())]
    return tag("footer", tag("p", " · ".join(versions)))


def _listing(title: str, lines: list[str] | tuple[str, ...]) -> Html:
    if not lines:
        return raw("")
    items = tag("ul", *[tag("li", line) for line in lines])
    return tag("details", tag("summary", tag("h3", f"{title} ({len(lines)})")), items)


def _undecided(report: Report) -> Html:
    if not report.not_evaluated:
        return raw("")
    by_reason: dict[str, list[str]] = {}
    for entry in report.not_evaluated:
        by_reason.setdefault(entry.reason, []).append(entry.rule)
    items = [
        join([tag("dt", ", ".join(rules)), tag("dd", reason)])
        for reason, rules in by_reason.items()
    ]
    title = tag("h3", f"Not evaluated ({len(report.not_evaluated)})")
    return tag("details", tag("summary", title), tag("dl", *items))
