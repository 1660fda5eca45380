"""One line of a log in text: ``key: value``, ``key=value`` and ``key value`` pairs."""

from __future__ import annotations

import re

from . import words
from .naming import AXES, Quantity, Split, direction_of, name_of, split_of
from .number import parse_number
from .plain_line import plain_line

__all__ = ["in_split", "is_measured", "places_of", "row_of_line"]

_NUMBER = (
    r"[+-]?(?:nan\b|inf(?:inity)?\b|\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+\.?\d*(?:e[+-]?\d+)?"
    r"|\.\d+(?:e[+-]?\d+)?)%?"
)
_WORD = r"(?!(?:nan|inf|infinity)\b)[A-Za-z_][\w./@-]{0,60}"
_NAME = rf"{_WORD}(?: {_WORD}){{0,2}}"
_WRAPPER = r"['\"(\[]*(?:(?:tensor|(?:device)?array|(?:np\.|numpy\.)?float\d*)\(\[?)?"
_PAIR = re.compile(
    rf"(?<![\w./@-])['\"]?(?P<name>{_NAME})['\"]?\s*"
    rf"(?:\s*[:=]\s*|\s+(?:(?P<count>\d+)\s+(?=[+-]?\d*\.\d|nan\b|inf\b))?){_WRAPPER}"
    rf"(?P<number>{_NUMBER})(?P<scale>(?-i:[kKM])(?![\w/]))?(?:\s*/\s*(?P<of>\d+))?",
    re.IGNORECASE,
)
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6}
_ITERATION = re.compile(r"\[\s*(\d+)\s*/\s*\d+[^\]]*\]|\b(\d+)/\d+ \[")
_EPOCH_AND_BATCH = re.compile(
    r"^\s*\[\s*(\d+)\s*,\s*(\d+)\s*\]|\[\s*(\d+)(?:/\d+)?\s*\]\s*\[\s*(\d+)\s*/\s*\d+\s*\]"
    r"|^\W*train\w*:\s+(\d+)\s+\[\s*(\d+)\s*/\s*\d+",
    re.IGNORECASE,
)
_INDEXED = re.compile(r"\b(epoch|batch|iter(?:ation)?|step)\s?\[\s*(\d+)(?:/\d+)?\s*\]", re.I)
_ORDINAL = re.compile(r"\b(\d+)(?:st|nd|rd|th)?[ -]?epoch\b", re.IGNORECASE)
_ROUND = re.compile(r"(?:^|\S\])\s*\[(\d+)\]\s")
_LEADING = re.compile(r"\s*(\d{1,7})\s*[:|]\s")
_SPLIT = r"(train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|test)"
_PHASE = re.compile(rf"^\W*(?:\[?\s*)?{_SPLIT}\b", re.IGNORECASE)
_MARK = re.compile(
    rf"\b{_SPLIT}\b(?:['\"]?\s*[\]:|)](?!\s*[-+.\d])|\s+(?:results?|metrics|stats|phase|epoch)\b)",
    re.IGNORECASE,
)
_TOLD = re.compile(
    r"\b(?:best|improved?|decreased|increased|lowest|highest|patience|threshold)\b", re.IGNORECASE
)
"""Words of sentences about a number that was logged before."""


def row_of_line(line: str) -> dict[str, float]:
    """Return the numbers of one line by their names."""
    text = plain_line(line)
    marks = _marks(text)
    row: dict[str, float] = {}
    before, end = "", 0
    for found in _PAIR.finditer(text):
        told = _TOLD.search(text, end, found.end("name"))
        end = found.end()
        name = None if told else _known_name(found["name"], explicit=_is_explicit(found))
        name = _named_by_loss(name, before) if name is not None else None
        before = name or before
        if name is None or name.endswith(".py"):
            continue
        said = [split for place, split in marks if place <= found.start()]
        name = in_split(name, said[-1]) if said else name
        if name not in row:
            row[name] = _value(found, name)
            if found["count"] and not places_of(row):
                row["iteration"] = float(found["count"])
    _add_counts(row, text)
    return row


def is_measured(row: dict[str, float]) -> bool:
    """Whether a row holds a loss, a learning rate, a norm or a known metric."""
    for name in row:
        quantity = name_of(name).quantity
        if quantity in (Quantity.LOSS, Quantity.LOSS_PART, Quantity.LR, Quantity.GRAD_NORM):
            return True
        if quantity is Quantity.METRIC and direction_of(name) != "unknown":
            return True
    return False


def places_of(row: dict[str, float]) -> list[str]:
    """Return the names of a row that count steps, batches or epochs."""
    return [name for name in row if name_of(name).quantity in AXES - {Quantity.TIME}]


def in_split(name: str, split: Split) -> str:
    """Return a name as one of a split, unless it says so itself or places the row."""
    found = name_of(name)
    if split is Split.UNSAID or found.quantity in AXES or found.split is not Split.UNSAID:
        return name
    return f"{split.value}_{name}"


def _marks(text: str) -> list[tuple[int, Split]]:
    """Return where a line begins to tell of which data."""
    marks = [(found.start(), split_of(found[1])) for found in _MARK.finditer(text)]
    begins = _PHASE.match(text)
    if begins and split_of(begins[1]) is not Split.TRAIN:
        marks = [(0, split_of(begins[1])), *marks]
    return marks


def _value(found: re.Match[str], name: str) -> float:
    quantity = name_of(name).quantity
    if found["count"] and quantity in AXES:
        return float(found["count"])
    value = parse_number(found["number"]) * _SCALES.get(found["scale"] or "", 1.0)
    if found["of"] and quantity is Quantity.METRIC:
        return value / max(float(found["of"]), 1.0)  # a share: 9,123/10,000
    return value


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
    """Add ``[10/500]`` as the batch, ``[2, 500]`` as epoch and batch, ``[7]`` as the round.

    A row of held-out data only has no count of batches: it would be one of that data's.
    """
    indexed = _INDEXED.findall(text)
    if len(indexed) > 1:  # one alone may be of another count than the lines around it
        row.update({said.lower(): float(count) for said, count in indexed})
    ordinal = _ORDINAL.search(text)
    if ordinal and not places_of(row):
        row["epoch"] = float(ordinal[1])
    if any(name_of(name).quantity in (Quantity.STEP, Quantity.INNER) for name in row):
        return
    if row and all(name_of(name).split in (Split.VALIDATION, Split.TEST) for name in row):
        return
    both = _EPOCH_AND_BATCH.search(text)
    iteration = _ITERATION.search(text)
    if both:
        epoch, batch = [float(said) for said in both.groups() if said is not None]
        row.setdefault("epoch", epoch)
        row["batch"] = batch
    elif iteration:
        row["batch"] = float(iteration[1] or iteration[2])
    elif counted := _ROUND.search(text) or (not places_of(row) and _LEADING.match(text)):
        row["iteration"] = float(counted[1])


def _is_explicit(found: re.Match[str]) -> bool:
    between = found.string[found.end("name") : found.start("number")]
    return ":" in between or "=" in between


def _known_name(said: str, explicit: bool) -> str | None:
    """Return the name that precedes a number, cut to the words that mean something.

    ``explicit`` says that a colon or an equals sign binds name and number; without it only names
    of known quantities count.
    """
    parts = said.split()
    for start in range(len(parts)):
        name = " ".join(parts[start:])
        found = name_of(name)
        if found.quantity in (Quantity.METRIC, Quantity.TIME):
            continue
        if start + 1 < len(parts) and found.quantity in AXES and start == 0 and len(parts) > 2:
            continue
        return name if found.quantity is not Quantity.LOSS_PART else _trimmed(parts[start:])
    last = (
        " ".join(parts[-2:]) if split_of(" ".join(parts[-2:-1])) is not Split.UNSAID else parts[-1]
    )
    if name_of(last).quantity is Quantity.TIME:
        return None
    return last if explicit or direction_of(last) != "unknown" else None


def _trimmed(said: list[str]) -> str:
    """Of ``step took loss`` keep what belongs to the loss: one more word, or from a player on."""
    while len(said) > 2 and said[0].lower() not in words.PLAYERS | words.RIVALS:
        said = said[1:]
    return " ".join(said)
