"""A comparison as a page: what is new in full, and what became of the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nabla_core.issue import Issue

from ..comparing import Comparison
from ..markup import Html, join, raw, tag
from .document import bare_page
from .issue_list import issue_section, line

__all__ = ["changes_page"]

_NAMES = {
    "fixed": "Fixed",
    "allowed": "Allowed now",
    "undecided": "Not decided any more",
    "unchanged": "Unchanged",
}


def changes_page(comparison: Comparison, summary: str) -> str:
    """Return the page.

    Args:
        comparison: of two reports.
        summary: the verdict in one line.
    """
    kind = "passed" if comparison.passed else "failed"
    title = tag("h2", summary, id="verdict-title")
    verdict = tag(
        "section", title, id="verdict", class_=f"verdict {kind}", aria_labelledby="verdict-title"
    )
    header = tag("header", tag("h1", "nabla compare"))
    new_first = sorted(comparison.new, key=lambda issue: -issue.severity)
    new = issue_section(new_first, "New issues")
    main = tag("main", verdict, new, join(_rest(comparison)))
    return bare_page(f"nabla: {summary}", header, main)


def _rest(comparison: Comparison) -> Iterator[Html]:
    changed = [line(change.issue, f"(was {change.old.label}) ") for change in comparison.changed]
    yield _section("changed", "Changed severity", changed)
    for name, title in _NAMES.items():
        issues: Sequence[Issue] = getattr(comparison, name)
        yield _section(name, title, [line(issue) for issue in issues])
    rules = [tag("li", tag("code", rule)) for rule in comparison.first_evaluated]
    yield _section("first-evaluated", "Rules that the old report had not evaluated", rules)


def _section(name: str, title: str, items: Iterable[Html]) -> Html:
    found = list(items)
    if not found:
        return raw("")
    heading = tag("h2", f"{title} ({len(found)})", id=f"{name}-title")
    listed = tag("ul", *found, class_="short")
    return tag("section", heading, listed, id=name, aria_labelledby=f"{name}-title")
