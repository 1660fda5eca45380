"""What the name of a column says: which quantity, of which data, and which way is better."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Literal

from . import words

__all__ = [
    "AXES",
    "ERROR_RANK",
    "ColumnName",
    "Direction",
    "Quantity",
    "Split",
    "direction_of",
    "name_of",
    "plain_name",
    "split_of",
]

ERROR_RANK = 40
"""Rank of an error measure such as ``mse``: it is the loss only where nothing is called so."""

Direction = Literal["lower", "higher", "unknown"]


class Split(Enum):
    """The data that a number was measured on."""

    TRAIN = "train"
    VALIDATION = "val"
    TEST = "test"
    UNSAID = ""


class Quantity(Enum):
    """What a column holds."""

    STEP = "step"
    EPOCH = "epoch"
    INNER = "inner"  # counts batches, perhaps from zero in every epoch
    TIME = "time"
    LOSS = "loss"
    LOSS_PART = "loss_part"
    LR = "lr"
    GRAD_NORM = "grad_norm"
    UPDATE_RATIO = "update_ratio"
    WEIGHT_NORM = "weight_norm"
    METRIC = "metric"


AXES = frozenset({Quantity.STEP, Quantity.EPOCH, Quantity.INNER, Quantity.TIME})
"""Quantities that place a row instead of measuring something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnName:
    """A column's name, understood.

    Attributes:
        raw: as the file spells it.
        quantity: what it holds.
        split: the data it was measured on.
        core: the words that are left without those of the split; joined by ``_``.
        rank: among columns of one quantity, how plain the name is; 0 is plainest.
    """

    raw: str
    quantity: Quantity
    split: Split
    core: str
    rank: int = 0


_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+(?:\.\d+)?")
_PLAYER = re.compile(r"[GD]_(?!(?:model|norm|lr|acc|steps?|iters?)\b)[A-Za-z]\w*")
_GLUED = re.compile(r"(?i)\b(train|valid|val|eval|test|dev)(loss|acc|accuracy|error|ppl)\b")
_SPLITS = {
    **dict.fromkeys(words.TRAIN, Split.TRAIN),
    **dict.fromkeys(words.VALIDATION, Split.VALIDATION),
    **dict.fromkeys(words.TEST, Split.TEST),
}


@lru_cache(maxsize=4096)
def name_of(raw: str) -> ColumnName:
    """Return what a column's name says."""
    said = _words(raw)
    kept = tuple(word for word in said if word not in _SPLITS)
    split = next((_SPLITS[word] for word in said if word in _SPLITS), Split.UNSAID)
    quantity, rank = _quantity(said, kept)
    if quantity is Quantity.METRIC and "/" in raw:  # "time/total_timesteps" is grouped
        grouped = _place(" ".join(_words(raw.rsplit("/", 1)[1])))
        quantity, rank = grouped or (quantity, rank)
    if quantity is Quantity.METRIC and _PLAYER.fullmatch(raw):  # "G_GAN", "D_real"
        quantity, rank = Quantity.LOSS_PART, 2
    return ColumnName(raw=raw, quantity=quantity, split=split, core=_core(raw), rank=rank)


def split_of(text: str) -> Split:
    """Return the split that a word of a column, a folder or a cell means."""
    return next((_SPLITS[word] for word in _words(text) if word in _SPLITS), Split.UNSAID)


@lru_cache(maxsize=4096)
def direction_of(name: str) -> Direction:
    """Return whether lower or higher values of a metric are better, as its name says."""
    said = _words(name)
    joined = {*said, *(a + b for a, b in zip(said, said[1:], strict=False))}
    if joined & words.LOWER or any(word.endswith("loss") for word in said):
        return "lower"
    return "higher" if joined & words.HIGHER else "unknown"


def plain_name(raw: str) -> str:
    """Return a name in lower case with blanks between its words: ``runId`` is ``run id``."""
    return re.sub(r"[\W_]+|(?<=[a-z])(?=[A-Z])", " ", raw).strip().lower()


def _words(raw: str) -> tuple[str, ...]:
    spaced = _GLUED.sub(r"\1 \2", raw.replace("_", " "))
    return tuple(word.lower() for word in _WORDS.findall(spaced))


def _core(raw: str) -> str:
    spaced = _GLUED.sub(r"\1 \2", raw.replace("_", " "))
    said = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", spaced).lower())
    return "_".join(word for word in said if word not in _SPLITS)


def _quantity(said: tuple[str, ...], kept: tuple[str, ...]) -> tuple[Quantity, int]:
    return _place(" ".join(said)) or _measured(said, kept)


def _place(text: str) -> tuple[Quantity, int] | None:
    """Return which axis a name means, if any; a global count is the plainest."""
    if text in words.STEPS:
        return Quantity.STEP, 0 if {"global", "total"} & set(text.split()) else 1
    for quantity, names in (
        (Quantity.EPOCH, words.EPOCHS),
        (Quantity.INNER, words.INNERS),
        (Quantity.TIME, words.TIMES),
    ):
        if text in names:
            return quantity, 0
    return None


def _measured(said: tuple[str, ...], kept: tuple[str, ...]) -> tuple[Quantity, int]:
    text = " ".join(kept)
    if (words.RATES & {text} or "lr" in kept or "learning rate" in text) and "loss" not in kept:
        return Quantity.LR, 0 if text in words.RATES else len(kept)
    if "clip" not in said and _is_norm(said, {"grad", "gradient", "gradients", "gnorm"}):
        return Quantity.GRAD_NORM, len(kept)
    if "update" in said and "ratio" in said:
        return Quantity.UPDATE_RATIO, len(kept)
    if _is_norm(said, {"weight", "weights", "param", "params", "parameter", "parameters"}):
        return Quantity.WEIGHT_NORM, len(kept)
    return _loss_or_metric(said, kept)


def _is_norm(said: tuple[str, ...], of: set[str]) -> bool:
    return "gnorm" in said or ("norm" in said and bool(of & set(said)))


def _loss_or_metric(said: tuple[str, ...], kept: tuple[str, ...]) -> tuple[Quantity, int]:
    if kept[-1:] == ("value",) and kept[-2:-1] == ("loss",):  # "lm loss value"; not "value loss"
        kept = kept[:-1]
    if not any(word in words.LOSSES or word.endswith("loss") for word in kept):
        is_error = bool(words.ERRORS & set(kept)) and set(kept) <= words.ERRORS | words.QUALIFIERS
        rank = ERROR_RANK + bool(words.EXPONENTIAL & set(kept))
        return (Quantity.LOSS, rank) if is_error else (Quantity.METRIC, 0)
    is_duration = "cost" in kept and bool(words.TIMED & set(kept))
    is_power = bool(words.EXPONENTIAL & set(kept))  # "lm loss ppl" is its exponential
    if words.NO_LOSS & set(said) or is_duration or is_power:
        return Quantity.METRIC, 0
    others = [word for word in kept if word not in words.LOSSES | words.QUALIFIERS]
    rest = [word for word in others if word not in words.TOTALS]
    if rest:
        return Quantity.LOSS_PART, len(rest)
    rank = 10 * bool(words.SMOOTHED & set(kept)) + 5 * ("mean" in kept) + len(kept) - 1
    return Quantity.LOSS, rank + 2 * bool(others)
