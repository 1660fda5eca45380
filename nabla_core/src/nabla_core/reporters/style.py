"""How a text report looks: colour, width, detail."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..severity import Severity

__all__ = ["Style", "counted", "printable", "without_commands"]

# besides control characters: marks that reorder text, line ends of their own, and halves of a
# surrogate pair, which no stream can encode
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_COMMAND = re.compile(r"(?m)^([ \t]*)(::|##\[|##vso\[|##teamcity\[)")
_CODES: Mapping[str, str] = {
    "bold": "1",
    "dim": "2",
    "critical": "1;31",
    "high": "31",
    "medium": "33",
    "low": "36",
    "info": "34",
    "good": "32",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Look of a text report.

    Attributes:
        color: use ANSI colours.
        verbose: 0 for the verdicts, 1 to add evidence of lesser use and rules not evaluated.
        width: columns.
    """

    color: bool = False
    verbose: int = 0
    width: int = 100

    def paint(self, text: str, name: str) -> str:
        """Return ``text`` in a named colour, or as it is."""
        return f"\x1b[{_CODES[name]}m{text}\x1b[0m" if self.color and text else text

    def severity(self, severity: Severity) -> str:
        """Return the severity's name, padded and coloured."""
        return self.paint(f"{severity.name:<8}", severity.label)


def counted(number: int, thing: str) -> str:
    """Return ``"1 rule"`` or ``"2 rules"``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Return ``text`` without control characters: names from a model must not steer a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def without_commands(text: str) -> str:
    """Return ``text`` with no line that a CI service takes for a command to it."""
    return _COMMAND.sub("\\1\N{WORD JOINER}\\2", text)
