"""What a reader met that a person may want to know; never a verdict."""

from __future__ import annotations

__all__ = ["Notes"]

_MAX_NOTES = 20


class Notes:
    """Remarks on a log, each once, bounded."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, text: str, times: int = 1) -> None:
        """Remember a remark; the same one is counted."""
        if text in self._counts or len(self._counts) < _MAX_NOTES:
            self._counts[text] = self._counts.get(text, 0) + times

    def lines(self) -> list[str]:
        """Return the remarks in the order in which they came."""
        return [text if n == 1 else f"{text} ({n} times)" for text, n in self._counts.items()]
