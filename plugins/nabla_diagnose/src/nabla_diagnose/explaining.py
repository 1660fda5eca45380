"""Longer explanations for a report: what the rules that spoke mean, and where they are wrong."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from nabla_core.registry import Registry
from nabla_core.report import Report, Section
from nabla_core.rule import Rule

__all__ = ["explanations", "rule_lines"]

_WIDTH = 96


def explanations(report: Report, registry: Registry) -> tuple[Section, ...]:
    """Return one section for every rule that spoke, in the order of the report."""
    ids = dict.fromkeys(issue.rule for issue in report.issues)
    rules = [rule for rule in map(registry.get, ids) if rule is not None]
    return tuple(
        Section(title=f"{rule.id} {rule.name}", lines=tuple(rule_lines(rule))) for rule in rules
    )


def rule_lines(rule: Rule) -> Iterable[str]:
    """Yield why a rule exists, what to do, and when it is wrong or silent."""
    for label, text in (("why", rule.rationale), ("try", rule.fix), ("limits", rule.limits)):
        yield from textwrap.wrap(
            text, _WIDTH, initial_indent=f"  {label:<8}", subsequent_indent=" " * 10
        )
