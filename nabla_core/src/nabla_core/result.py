"""What every public result can do: say whether it passed, print itself, fail a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import CheckFailed

if TYPE_CHECKING:
    from .issue import Issue
    from .severity import Severity

__all__ = ["ResultMixin"]


class ResultMixin:
    """Shared behaviour of reports and check results. Subclasses give ``issues`` and ``fail_on``."""

    __slots__ = ()

    issues: tuple[Issue, ...]
    fail_on: Severity

    @property
    def passed(self) -> bool:
        """Whether no issue is at or above ``fail_on``."""
        return not self.failures

    @property
    def failures(self) -> tuple[Issue, ...]:
        """The issues at or above ``fail_on``."""
        return tuple(issue for issue in self.issues if issue.severity >= self.fail_on)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {"passed": self.passed, "issues": [issue.to_dict() for issue in self.issues]}

    def format(self) -> str:
        """Return the text that :meth:`print` shows, without colour."""
        from .reporters.console import render_result

        return render_result(self)

    def print(self) -> None:
        """Print the result to standard output."""
        print(self.format())

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.format())}</pre>"

    def raise_if_failed(self) -> None:
        """Raise when an issue is at or above ``fail_on``.

        Raises:
            CheckFailed: the text is :meth:`format`; it is an AssertionError too.
        """
        if not self.passed:
            raise CheckFailed(self.format())
