"""How bad an issue is, and how other formats call it."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Severity"]


class Severity(IntEnum):
    """Ordered severity of a rule or an issue.

    Severity follows certainty: HIGH and CRITICAL where the measured fact is the fault, MEDIUM
    where the author's intent may differ, LOW where the harm is small, INFO for what is worth
    knowing but is no fault.
    """

    INFO = 10
    LOW = 20
    MEDIUM = 30
    HIGH = 40
    CRITICAL = 50

    @property
    def label(self) -> str:
        """Lower-case name, as written in JSON and configuration."""
        return self.name.lower()

    @property
    def sarif_level(self) -> str:
        """Level of SARIF 2.1.0: ``note``, ``warning`` or ``error``."""
        if self >= Severity.HIGH:
            return "error"
        return "warning" if self is Severity.MEDIUM else "note"

    @property
    def github_level(self) -> str:
        """Workflow command of GitHub Actions: ``notice``, ``warning`` or ``error``."""
        level = self.sarif_level
        return "notice" if level == "note" else level

    @classmethod
    def parse(cls, text: str) -> Severity:
        """Return the severity called ``text`` in any case.

        Raises:
            ValueError: no severity has this name; the message lists all of them.
        """
        for severity in cls:
            if severity.label == text.strip().lower():
                return severity
        names = ", ".join(severity.label for severity in cls)
        raise ValueError(f"unknown severity {text!r}: choose one of {names}")
