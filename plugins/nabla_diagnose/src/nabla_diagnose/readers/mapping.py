"""From the columns of a log to the signals of a step record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nabla_core.binder import closest
from nabla_core.errors import InputError

from . import words
from .axis import Axis, choose_axis
from .known_signals import known_signal
from .naming import AXES, ERROR_RANK, ColumnName, Quantity, Split, name_of

__all__ = ["ColumnMap", "ReadOptions", "map_columns", "signal_for"]

_LOSSES = frozenset({"loss", "val_loss", "test_loss", "d_loss", "g_loss"})
_COVERED = 0.2
_REPEATED = 3
_SCALARS = {
    Quantity.LR: "lr",
    Quantity.GRAD_NORM: "grad_norm",
    Quantity.UPDATE_RATIO: "update_ratio",
    Quantity.WEIGHT_NORM: "weight_norm",
}

Columns = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read a log.

    Attributes:
        columns: signal to column, e.g. ``{"loss": "Train/Loss"}``; wins over what names say.
    """

    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMap:
    """What the columns of a log mean.

    Attributes:
        axis: columns that place a row.
        signals: column to signal.
        sums: signal to the columns whose sum it is (``loss`` where only its parts are logged).
        adversarial: the losses belong to players of a game or to reinforcement learning; that
            they rise or fall says nothing by itself.
    """

    axis: Axis
    signals: Mapping[str, str]
    sums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    adversarial: bool = False

    @property
    def has_loss(self) -> bool:
        """Whether any loss was found, be it a part or of a validation set."""
        names = (*self.signals.values(), *self.sums)
        return any(name.split("/")[0] in _LOSSES for name in names)

    def lines(self) -> list[str]:
        """Return ``column -> signal`` lines for a person."""
        step = self.axis.step or "row number"
        found = [f"{step} -> step"]
        found += [f"{column} -> {signal}" for column, signal in self.signals.items()]
        found += [f"sum of {', '.join(parts)} -> {signal}" for signal, parts in self.sums.items()]
        return found


def map_columns(columns: Columns, options: ReadOptions) -> ColumnMap:
    """Decide from the first rows what each column means.

    Raises:
        InputError: a column that the person names does not exist.
    """
    chosen = {signal: _existing(column, columns) for signal, column in options.columns.items()}
    axis = choose_axis(columns, chosen.get("step"))
    taken = set(chosen.values())
    signals = {column: signal for signal, column in chosen.items() if signal != "step"}
    names = [name_of(raw) for raw in columns if raw not in taken]
    covered = {raw: len(values) - values.count(None) for raw, values in columns.items()}
    adversarial = _is_game(names)
    for split, signal in ((Split.TRAIN, "loss"), (Split.VALIDATION, "val_loss")):
        if signal in chosen:
            continue
        main = _main_loss(names, split, covered, adversarial)
        if main is None and split is Split.VALIDATION:
            main = _main_loss(names, Split.TEST, covered, adversarial)
            if main is not None and covered[main.raw] < _REPEATED:
                main = None  # one test at the end is no validation
        if main is not None:
            signals[main.raw] = signal
    sums = _sums(names, set(signals.values()), adversarial)
    for name in sorted(names, key=lambda found: found.rank):
        if name.raw not in signals and name.quantity not in AXES:
            signals[name.raw] = signal_for(name, {*signals.values(), *sums})
    order = {raw: place for place, raw in enumerate(columns)}
    ordered = dict(sorted(signals.items(), key=lambda item: order[item[0]]))
    return ColumnMap(axis=axis, signals=ordered, sums=sums, adversarial=adversarial)


def signal_for(name: ColumnName, taken: Iterable[str]) -> str:
    """Return the signal of a column that is not the main loss; never one of ``taken``."""
    wanted = _wanted(name)
    known = set(taken) | {"loss", "val_loss", "step"}
    if wanted not in known:
        return wanted
    spare = f"{_scope(name)}{name.core or name.raw}"
    return spare if spare not in known else name.raw if name.raw not in known else f"{name.raw}#2"


def _wanted(name: ColumnName) -> str:
    known = known_signal(name)
    if known is not None:
        return known
    prefix = "" if name.split is Split.UNSAID else f"{name.split.value}_"
    if name.quantity in (Quantity.LOSS, Quantity.LOSS_PART) and name.rank < ERROR_RANK:
        base = "loss" if name.split in (Split.TRAIN, Split.UNSAID) else f"{prefix}loss"
        part = "_".join(word for word in name.core.split("_") if word != "loss")
        return f"{base}/{part}" if part else f"{prefix}loss"
    if name.quantity in _SCALARS and name.split in (Split.TRAIN, Split.UNSAID):
        return _SCALARS[name.quantity]
    return f"{prefix}{name.core}" if name.core else name.raw


def _scope(name: ColumnName) -> str:
    scope = _SCALARS.get(name.quantity, "")
    return f"{scope}/" if scope else ""


def _existing(column: str, columns: Columns) -> str:
    if column in columns:
        return column
    folded = {raw.strip().lower(): raw for raw in columns}
    found = folded.get(column.strip().lower())
    if found is None:
        raise InputError(
            f"column {column!r} does not exist{closest(column, list(columns))}; "
            f"columns seen: {', '.join(list(columns)[:40])}"
        )
    return found


def _main_loss(
    names: list[ColumnName], split: Split, covered: Mapping[str, int], adversarial: bool
) -> ColumnName | None:
    """Return the plainest loss of a split that enough rows have."""
    splits = (split, Split.UNSAID) if split is Split.TRAIN else (split,)
    losses = [name for name in names if name.quantity is Quantity.LOSS and name.split in splits]
    parts = [name for name in names if name.quantity is Quantity.LOSS_PART and name.split in splits]
    if any("loss" in name.core for name in losses):  # an "mse" beside a loss is a metric
        losses = [name for name in losses if "loss" in name.core or name.rank < ERROR_RANK]
    elif parts and all(name.rank >= ERROR_RANK for name in losses):
        losses = []  # nor beside the parts of one
    if not losses and len(parts) == 1 and not adversarial:
        losses = parts
    if not losses:
        return None
    most = max(covered[name.raw] for name in losses)
    enough = [name for name in losses if covered[name.raw] >= _COVERED * most]
    return min(enough, key=lambda name: (name.rank, -covered[name.raw], name.split.value))


def _sums(
    names: list[ColumnName], mapped: set[str], adversarial: bool
) -> dict[str, tuple[str, ...]]:
    """Where a loss is logged in parts only, judge their sum; never that of opposing players."""
    parts = [name for name in names if name.quantity is Quantity.LOSS_PART]
    train = [name for name in parts if name.split in (Split.TRAIN, Split.UNSAID)]
    if "loss" in mapped or adversarial or len(train) < 2:
        return {}
    sums = {"loss": tuple(name.raw for name in train)}
    held_out = [name for name in parts if name.split is Split.VALIDATION]
    if "val_loss" not in mapped and {n.core for n in held_out} == {n.core for n in train}:
        sums["val_loss"] = tuple(name.raw for name in held_out)
    return sums


def _is_game(names: list[ColumnName]) -> bool:
    """Whether the losses are those of opposing players, or of learning from rewards."""
    said = [set(name.core.split("_")) for name in names]
    players = sum(
        bool(found & words.PLAYERS)
        for found, name in zip(said, names, strict=True)
        if name.quantity in (Quantity.LOSS_PART, Quantity.LOSS)
    )
    everything = set().union(*said)
    alone = any(
        bool(found & words.RIVALS) and name.quantity in (Quantity.LOSS_PART, Quantity.LOSS)
        for found, name in zip(said, names, strict=True)
    )
    preferences = {"chosen", "rejected"} <= everything  # preference tuning is supervised
    return alone or players >= 2 or (bool(everything & words.REWARDS) and not preferences)
