"""How a table is written: its separator, its header, its decimal sign."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .number import parse_cell

__all__ = ["Dialect", "is_numeric", "is_text_row", "sniff_dialect", "unique_names"]

_SEPARATORS = (",", "\t", ";", "|")
_GAP = re.compile(r"\s{2,}")
_RULER = re.compile(r"[\s|:+=-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How the rows of a table are written.

    Attributes:
        separator: between cells; ``" "`` stands for any blanks, ``"  "`` for two and more.
        decimal_comma: numbers are written as ``0,5``.
    """

    separator: str = ","
    decimal_comma: bool = False

    @property
    def is_blank(self) -> bool:
        """Whether only blanks are between the cells."""
        return self.separator.isspace() and self.separator != "\t"

    def rows(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Return the cells of each line that is no ruler and not empty.

        Raises:
            csv.Error: a quoted cell is above the limit of the csv module.
        """
        if self.separator == "  ":
            said = (line.strip() for line in lines if not _RULER.fullmatch(line))
            return (_GAP.split(line) for line in said if line)
        if self.separator == " ":
            return (line.lstrip("# ").split() for line in lines if not _RULER.fullmatch(line))
        if self.separator == "|":
            lines = (line.strip().strip("|") for line in lines if not _RULER.fullmatch(line))
        rows = filter(None, csv.reader(lines, delimiter=self.separator, skipinitialspace=True))
        return map(self._without_commas, rows) if self.decimal_comma else rows

    @staticmethod
    def _without_commas(row: list[str]) -> list[str]:
        return [cell.replace(",", ".") if "," in cell else cell for cell in row]


def sniff_dialect(lines: Sequence[str]) -> Dialect:
    """Return how a table is written, from its first lines."""
    shown = [line for line in lines if line.strip() and not _RULER.fullmatch(line)][:30]
    best, best_score = "", 0.0
    for separator in _SEPARATORS:
        try:
            widths = Counter(len(row) for row in csv.reader(shown, delimiter=separator))
        except csv.Error:
            continue  # one cell of more than 128 KiB: this separates nothing
        width, times = widths.most_common(1)[0] if widths else (1, 0)
        score = times / max(len(shown), 1) + min(width, 50) / 1000
        if width > 1 and score > best_score:
            best, best_score = separator, score
    if not best:
        words = Counter(len(line.split()) for line in shown)
        gaps = Counter(len(_GAP.split(line.strip())) for line in shown)
        if len(gaps) == 1 < len(words) and min(gaps) > 1:
            return Dialect(separator="  ")  # names of two words
        blanks = bool(words) and words.most_common(1)[0][0] > 1
        return Dialect(separator=" " if blanks else ",")
    cells = [cell for row in csv.reader(shown[1:], delimiter=best) for cell in row]
    commas = sum(bool(re.fullmatch(r"\s*[+-]?\d+,\d+\s*", cell)) for cell in cells)
    return Dialect(separator=best, decimal_comma=best != "," and commas > 0)


def is_numeric(cell: str) -> bool:
    """Whether a cell holds a number or nothing."""
    try:
        parse_cell(cell)
    except ValueError:
        return False
    return True


def is_text_row(row: Sequence[str]) -> bool:
    """Whether a row has texts only, as a header has."""
    said = [cell for cell in row if cell.strip()]
    return bool(said) and not any(is_numeric(cell) for cell in said)


def unique_names(header: Iterable[str]) -> list[str]:
    """Return the names of the columns, stripped; one that repeats gets a number."""
    seen: Counter[str] = Counter()
    names = []
    for place, cell in enumerate(header, start=1):
        name = cell.strip().strip("\ufeff").strip("'\"").strip() or f"column{place}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names
