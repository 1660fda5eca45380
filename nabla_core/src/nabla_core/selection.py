"""Which rules run, how severe they are, and in which modules they are silent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from .issue import Issue
from .registry import Registry
from .rule import Rule
from .severity import Severity

__all__ = ["Selection", "SelectionOptions", "Selector"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A selector as written, and where it was written (for error messages)."""

    text: str
    source: str = "select"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionOptions:
    """What the configuration says about rules.

    Attributes:
        select: rules to run; empty means all stable ones.
        extend_select: rules to run besides those.
        ignore: rules not to run.
        severity: selector to severity.
        per_module: glob of module paths to selectors that are silent there.
        preview: also run rules that are in preview.
    """

    select: tuple[Selector, ...] = ()
    extend_select: tuple[Selector, ...] = ()
    ignore: tuple[Selector, ...] = ()
    severity: Mapping[Selector, Severity] = field(default_factory=dict)
    per_module: Mapping[str, tuple[Selector, ...]] = field(default_factory=dict)
    preview: bool = False


class Selection:
    """The decision for every known rule.

    The longest selector wins; at equal length ``ignore`` wins.

    Raises:
        SelectorError: a selector matches no rule and cannot belong to a plugin that is not
            installed.
    """

    def __init__(self, registry: Registry, options: SelectionOptions | None = None) -> None:
        self._registry = registry
        options = options or SelectionOptions()
        self._chosen = self._choose(options)
        self._severity = self._weights_of_severity(options.severity)
        self._silent = {
            glob: self._union(selectors) for glob, selectors in options.per_module.items()
        }

    def selects(self, rule: Rule | str) -> bool:
        """Whether ``rule`` runs; for a string, whether any rule with this prefix does."""
        if isinstance(rule, Rule):
            return rule.id in self._chosen or self._registry.get(rule.id) is None
        return any(chosen.startswith(rule) for chosen in self._chosen)

    def severity_of(self, rule: Rule) -> Severity:
        """Return the configured severity of ``rule``."""
        return self._severity.get(rule.id, rule.severity)

    def apply(self, issue: Issue) -> Issue | None:
        """Return ``issue`` with its configured severity, or ``None`` when it is not wanted."""
        if issue.rule not in self._chosen and self._registry.get(issue.rule) is not None:
            return None
        module = issue.where.module if issue.where else None
        for glob, ids in self._silent.items():
            if module is not None and issue.rule in ids and fnmatchcase(module, glob):
                return None
        configured = self._severity.get(issue.rule)
        return issue if configured is None else replace(issue, severity=configured)

    def _choose(self, options: SelectionOptions) -> frozenset[str]:
        weight: dict[str, int] = {}
        base = options.select or (Selector(text="ALL", source="default"),)
        for selector in (*base, *options.extend_select):
            ids, length = self._match(selector)
            for rule_id in ids:
                if self._wanted(rule_id, length, options.preview):
                    weight[rule_id] = max(weight.get(rule_id, -1), length)
        for selector in options.ignore:
            ids, length = self._match(selector)
            for rule_id in ids:
                if weight.get(rule_id, -1) <= length:
                    weight.pop(rule_id, None)
        return frozenset(weight)

    def _wanted(self, rule_id: str, length: int, preview: bool) -> bool:
        rule = self._registry.get(rule_id)
        return rule is not None and (
            rule.stability == "stable"
            or (preview and rule.stability == "preview")
            or length >= len(rule_id)
        )

    def _match(self, selector: Selector) -> tuple[frozenset[str], int]:
        if not self._registry.find(selector.text) and self._registry.is_reserved(selector.text):
            return frozenset(), 0
        return self._registry.match(selector.text, selector.source)

    def _union(self, selectors: Iterable[Selector]) -> frozenset[str]:
        return frozenset().union(*(self._match(selector)[0] for selector in selectors))

    def _weights_of_severity(self, wanted: Mapping[Selector, Severity]) -> dict[str, Severity]:
        best: dict[str, tuple[int, Severity]] = {}
        for selector, severity in wanted.items():
            ids, length = self._match(selector)
            for rule_id in ids:
                if length >= best.get(rule_id, (-1, severity))[0]:
                    best[rule_id] = (length, severity)
        return {rule_id: severity for rule_id, (_, severity) in best.items()}
