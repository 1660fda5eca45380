"""A log as a source of facts: what it offers is known only when it has been read."""

from __future__ import annotations

from collections.abc import Set

from nabla_core.records import StepRecord
from nabla_core.session import Session

from .readers.span import Span

__all__ = ["LogSource", "tell_absent"]


class LogSource:
    """Offers every signal that a rule of this plugin may need, and says at the end which were not
    there.

    Args:
        name: how reports call it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._seen: set[str] = set()

    @property
    def offers(self) -> frozenset[str]:
        """Every signal that the rules need; the log may hold any of them."""
        from .rules import RULES

        return frozenset(need for rule in RULES for need in rule.needs)

    def note(self, record: StepRecord) -> None:
        """Remember which signals a record has."""
        if not self._seen.issuperset(record.signals):
            self._seen.update(record.signals)
        if record.layers:
            self._seen.add("layer_norms")

    def note_span(self, span: Span) -> None:
        """Remember which signals the rows of a span have."""
        self._seen.update(span.dense)
        for name, values in span.sparse.items():
            if name not in self._seen and any(value is not None for value in values):
                self._seen.add(name)

    def tell_absent(self, session: Session) -> None:
        """Say of each selected rule that needs what was never logged that it was not evaluated."""
        tell_absent(session, self._seen, self.name)


def tell_absent(session: Session, seen: Set[str], name: str) -> None:
    """Say of each selected rule that needs a signal which was never there why it is undecided.

    Args:
        session: hears it.
        seen: signals that were there.
        name: how the source is called.
    """
    from .rules import RULES

    spoke = {issue.rule for issue in session.issues}
    for rule in RULES:
        missing = sorted(set(rule.needs) - seen)
        if missing and rule.id not in spoke:
            session.undecide(rule, f"{name} holds no {', '.join(missing)}")
