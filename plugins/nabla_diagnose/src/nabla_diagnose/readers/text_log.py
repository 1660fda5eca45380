"""Logs in running text: lines with ``key: value``, ``key=value`` or ``key value`` pairs.

A line counts as a row if it has a number under a name that means a loss, a learning rate or a
known metric. A line that only tells the epoch or step gives them to the lines that follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .block import Block, blocks_of_rows
from .lines import read_lines
from .naming import AXES, Quantity, Split, direction_of, name_of, split_of
from .notes import Notes
from .number import parse_number

__all__ = ["read_blocks", "row_of_line", "sniff"]

_NUMBER = (
    r"[+-]?(?:nan\b|inf(?:inity)?\b|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:e[+-]?\d+)?"
    r"|\.\d+(?:e[+-]?\d+)?)%?"
)
_NAME = r"[A-Za-z_][\w./@-]{0,60}(?: [A-Za-z_][\w./@-]{0,60}){0,2}"
_PAIR = re.compile(
    rf"(?<![\w./@-])['\"]?(?P<name>{_NAME})['\"]?\s*(?:\s*[:=]\s*|\s+)['\"(\[]*(?:tensor\()?"
    rf"(?P<number>{_NUMBER})(?:\s*/\s*(?P<of>\d+))?",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d[T ]?|\d\d:\d\d:\d\d(?:[.,]\d+)?|\d{1,3}:\d\d<\d{1,3}:\d\d")
_COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ITERATION = re.compile(r"\[\s*(\d+)\s*/\s*\d+[^\]]*\]|\b(\d+)/\d+ \[")
_EPOCH_AND_BATCH = re.compile(
    r"^\s*\[\s*(\d+)\s*,\s*(\d+)\s*\]|\[\s*(\d+)(?:/\d+)?\s*\]\s*\[\s*(\d+)\s*/\s*\d+\s*\]"
)
_SOURCE = re.compile(
    r"\(?\b[\w./]+:\d+\)?\]?[\s:-]*(?:INFO|WARN(?:ING)?|DEBUG|ERROR)\b|\b[\w.]+:[\w<>]+:\d+\b"
)
_ROUND = re.compile(r"(?:^|\S\])\s*\[(\d+)\]\s")
_PHASE = re.compile(
    r"^\W*(?:\[?\s*)?(train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|test)\b", re.IGNORECASE
)
_MARK = re.compile(
    r"\b(train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|test)\b\s*[\]:|)](?!\s*[-+.\d])",
    re.IGNORECASE,
)
_MAX_LINE = 8_000


def read_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a text log. Lines without a measurement are passed over.

    Raises:
        InputError: it cannot be read.
    """
    yield from blocks_of_rows(_rows(path))


def sniff(head: bytes) -> float:
    """Return how surely these first bytes are a log in text with measurements."""
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    measured = sum(_is_measured(row_of_line(line)) for line in lines[:400])
    return 0.0 if not measured else min(0.5, 0.2 + measured / 20)


def row_of_line(line: str) -> dict[str, float]:
    """Return the numbers of one line by their names."""
    text = _CLOCK.sub(" ", _COLOR.sub("", line[:_MAX_LINE]).replace("#011", " "))
    text = _SOURCE.sub(" ", text.replace("'s ", " "))  # "training's loss"
    marks = [(found.start(), split_of(found[1])) for found in _MARK.finditer(text)]
    begins = _PHASE.match(text)
    if begins and split_of(begins[1]) is not Split.TRAIN:
        marks = [(0, split_of(begins[1])), *marks]
    row: dict[str, float] = {}
    before = ""
    for found in _PAIR.finditer(text):
        name = _known_name(found["name"], explicit=_is_explicit(found))
        name = _named_by_loss(name, before) if name is not None else None
        before = name or before
        if name is None or name.endswith(".py"):
            continue
        said = [split for place, split in marks if place <= found.start()]
        name = _in_split(name, said[-1]) if said else name
        if name in row:
            continue
        value = parse_number(found["number"])
        is_share = found["of"] and name_of(name).quantity is Quantity.METRIC
        row[name] = value / max(float(found["of"]), 1.0) if is_share else value
    _add_counts(row, text)
    return row


def _named_by_loss(name: str, before: str) -> str | None:
    """Of ``loss train: 0.3, val: 0.4`` the second name is that of a loss, too.

    After ``loss: 0.3`` it is not: ``train`` and ``val`` may be shares of right answers there.
    """
    split = split_of(name)
    if split is Split.UNSAID or name_of(name).core:
        return name
    *quantity, last = before.split() or [""]
    is_loss = bool(quantity) and name_of(" ".join(quantity)).quantity is Quantity.LOSS
    return f"{split.value}_loss" if is_loss and split_of(last) is not Split.UNSAID else None


def _add_counts(row: dict[str, float], text: str) -> None:
    """Add ``[10/500]`` as the batch, ``[2, 500]`` as epoch and batch, ``[7]`` as the round."""
    if any(name_of(name).quantity in (Quantity.STEP, Quantity.INNER) for name in row):
        return
    both = _EPOCH_AND_BATCH.search(text)
    iteration = _ITERATION.search(text)
    if both:
        epoch, batch = both[1] or both[3], both[2] or both[4]
        row.setdefault("epoch", float(epoch))
        row["batch"] = float(batch)
    elif iteration:
        row["batch"] = float(iteration[1] or iteration[2])
    elif boosted := _ROUND.search(text):
        row["iteration"] = float(boosted[1])


def _rows(path: Path) -> Iterator[dict[str, float]]:
    context: dict[str, float] = {}
    for line in read_lines(path):
        row = row_of_line(line)
        if not row:
            continue
        axes = {n: value for n, value in row.items() if name_of(n).quantity in AXES}
        if not _is_measured(row):
            if 2 * len(axes) >= len(row):
                context.update(axes)
            continue
        if axes:
            context = {n: value for n, value in context.items() if n not in axes}
        yield {**context, **row}


def _is_measured(row: dict[str, float]) -> bool:
    for name in row:
        quantity = name_of(name).quantity
        if quantity in (Quantity.LOSS, Quantity.LOSS_PART, Quantity.LR, Quantity.GRAD_NORM):
            return True
        if quantity is Quantity.METRIC and direction_of(name) != "unknown":
            return True
    return False


def _is_explicit(found: re.Match[str]) -> bool:
    between = found.string[found.end("name") : found.start("number")]
    return ":" in between or "=" in between


def _known_name(said: str, explicit: bool) -> str | None:
    """Return the name that precedes a number, cut to the words that mean something.

    ``explicit`` says that a colon or an equals sign binds name and number; without it only names
    of known quantities count.
    """
    words = said.split()
    for start in range(len(words)):
        name = " ".join(words[start:])
        found = name_of(name)
        if found.quantity in (Quantity.METRIC, Quantity.TIME):
            continue
        if start + 1 < len(words) and found.quantity in AXES and start == 0 and len(words) > 2:
            continue
        return name if found.quantity is not Quantity.LOSS_PART else _trimmed(words[start:])
    last = (
        " ".join(words[-2:]) if split_of(" ".join(words[-2:-1])) is not Split.UNSAID else words[-1]
    )
    if name_of(last).quantity is Quantity.TIME:
        return None
    return last if explicit or direction_of(last) != "unknown" else None


def _trimmed(words: list[str]) -> str:
    """Of ``step took loss`` keep what belongs to the loss: known splits and one more word."""
    if len(words) <= 2:
        return " ".join(words)
    return " ".join(words[-2:])


def _in_split(name: str, split: Split) -> str:
    found = name_of(name)
    if split is Split.UNSAID or found.quantity in AXES or found.split is not Split.UNSAID:
        return name
    return f"{split.value}_{name}"
