"""All known rules: who owns which prefix, which old codes mean what, which IDs are gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .errors import RuleCollisionError, SelectorError
from .nearest import nearest
from .rule import Rule

__all__ = ["RESERVED_PREFIXES", "Registry", "Tombstone"]

RESERVED_PREFIXES: Mapping[str, str] = {
    "NAB": "core",
    "CHK": "check",
    "NUM": "guard",
    "GEO": "trace",
    "REP": "replay",
    "AUD": "audit",
    "RUN": "diagnose",
    "CAU": "causal",
    "CON": "contracts",
    "PRC": "precision",
}
"""Prefix to the plugin of the nabla project that owns it; nobody else can take it."""


_DIGITS = str.maketrans("oil", "011")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """An ID that is gone for good: selectors that name it are told why."""

    id: str
    since: str
    reason: str


class Registry:
    """Rules by ID, name and alias. One owner per prefix; IDs and names are unique."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}
        self._names: dict[str, str] = {}
        self._aliases: dict[str, set[str]] = {}
        self._owners: dict[str, str] = {}
        self._tombstones: dict[str, Tombstone] = {}

    def __iter__(self) -> Iterator[Rule]:
        return iter(sorted(self._rules.values(), key=lambda rule: rule.id))

    def __len__(self) -> int:
        return len(self._rules)

    def add(self, rule: Rule, plugin: str) -> None:
        """Take ``rule`` in as a rule of ``plugin``.

        Raises:
            RuleCollisionError: the prefix, the ID or the name belongs to somebody else, or the ID
                is gone.
        """
        owner = self._owners.get(rule.prefix, RESERVED_PREFIXES.get(rule.prefix, plugin))
        if owner != plugin:
            raise RuleCollisionError(
                f"rule {rule.id}: prefix {rule.prefix} belongs to plugin {owner!r}; "
                "choose another prefix"
            )
        if rule.id in self._rules:
            raise RuleCollisionError(f"rule {rule.id} is declared twice")
        if rule.id in self._tombstones:
            grave = self._tombstones[rule.id]
            raise RuleCollisionError(
                f"rule {rule.id} was removed in {grave.since} ({grave.reason}); IDs "
                "are never reused"
            )
        if rule.name in self._names:
            raise RuleCollisionError(
                f"rule {rule.id}: name {rule.name!r} already belongs to {self._names[rule.name]}"
            )
        self._owners[rule.prefix] = plugin
        self._rules[rule.id] = rule
        self._names[rule.name] = rule.id
        for alias in rule.aliases:
            self._aliases.setdefault(alias.upper(), set()).add(rule.id)

    def remove_plugin(self, plugin: str) -> None:
        """Forget everything that ``plugin`` declared."""
        gone = {prefix for prefix, owner in self._owners.items() if owner == plugin}
        for rule in [rule for rule in self._rules.values() if rule.prefix in gone]:
            del self._rules[rule.id], self._names[rule.name]
            for alias in rule.aliases:
                self._aliases[alias.upper()].discard(rule.id)
        for prefix in gone:
            del self._owners[prefix]

    def bury(self, tombstone: Tombstone) -> None:
        """Remember that an ID is gone."""
        self._tombstones[tombstone.id] = tombstone

    def owner_of(self, rule_id: str) -> str:
        """Return the plugin that owns the prefix of ``rule_id``, or ``""``."""
        return self._owners.get(rule_id[:-3], "")

    def get(self, rule_id: str) -> Rule | None:
        """Return the rule with this ID."""
        return self._rules.get(rule_id)

    def find(self, key: str) -> tuple[Rule, ...]:
        """Return the rules that an ID, a name or an alias means, or an empty tuple."""
        exact = self._rules.get(key.upper()) or self._rules.get(self._names.get(key.lower(), ""))
        if exact is not None:
            return (exact,)
        return tuple(self._rules[i] for i in sorted(self._aliases.get(key.upper(), ())))

    def match(self, selector: str, source: str) -> tuple[frozenset[str], int]:
        """Return the IDs that ``selector`` means and its weight; longer is more specific.

        ``ALL``, a prefix of IDs (``NUM``, ``NUM1``), an ID, a name or an alias.

        Raises:
            SelectorError: it matches nothing; the message names ``source`` and the nearest match.
        """
        if selector.upper() == "ALL":
            return frozenset(self._rules), 0
        named = self.find(selector)
        if named:
            return frozenset(rule.id for rule in named), len(named[0].id)
        upper = selector.upper()
        under = frozenset(i for i in self._rules if i.startswith(upper)) if upper else frozenset()
        if under:
            return under, len(upper)
        raise SelectorError(self._no_match(selector, source))

    def means(self, selector: str, rule_id: str) -> bool:
        """Whether ``selector`` (``ALL``, prefix, ID, name or alias) covers a rule."""
        upper = selector.upper()
        return (
            upper == "ALL"
            or (bool(upper) and rule_id.startswith(upper))
            or any(rule.id == rule_id for rule in self.find(selector))
        )

    def is_reserved(self, selector: str) -> bool:
        """Whether ``selector`` could mean rules of a nabla plugin that is not installed."""
        head = selector.upper()[:3]
        return head in RESERVED_PREFIXES and head not in self._owners

    def nearest(self, key: str) -> tuple[str, ...]:
        """Return up to three known IDs, names or aliases that look like ``key``."""
        known = [*self._rules, *self._names, *self._aliases]
        by_fold = {name.lower(): name for name in known}
        read = key.lower()
        if any(map(str.isdigit, read)):  # an ID: letters that look like digits are digits
            read = read[:3] + read[3:].translate(_DIGITS)
        close = nearest(read, list(by_fold), count=3)
        return tuple(by_fold[name] for name in close)

    def _no_match(self, selector: str, source: str) -> str:
        grave = self._tombstones.get(selector.upper())
        if grave is not None:
            return f"{source}: rule {selector} was removed in {grave.since}: {grave.reason}"
        close = self.nearest(selector)
        hint = (
            f"did you mean {' or '.join(close)}?" if close else "see `nabla rules` for all of them"
        )
        return f"{source}: no rule matches {selector!r}; {hint}"
