"""Rows of several runs or ranks in one file, told apart by a column that names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .naming import plain_name

__all__ = ["RUN_NAMES", "come_in_turn", "run_column", "run_of"]

RUN_NAMES = frozenset(
    {
        "run",
        "run hash",
        "run id",
        "run name",
        "run uuid",
        "experiment",
        "trial",
        "trial id",
        "seed",
        "fold",
        "rank",
        "local rank",
        "global rank",
    }
)
"""Names of columns that say to which run a row belongs."""


def run_column(items: Iterable[Mapping[str, object]]) -> str | None:
    """Return the key that tells runs apart in these rows: two of them in turn; ``None`` if none.

    Runs one after the other need no key: their steps start again.
    """
    values: dict[str, list[object]] = {}
    for item in items:
        for key in item:
            if plain_name(key) in RUN_NAMES:
                values.setdefault(key, []).append(item[key])
    return next((key for key, said in values.items() if come_in_turn(said)), None)


def come_in_turn(said: Sequence[object]) -> bool:
    """Whether rows of several runs alternate, by what each row says of its run."""
    changes = sum(a != b for a, b in zip(said, said[1:], strict=False))
    return changes >= len(set(map(str, said))) > 1


def run_of(item: Mapping[str, object], key: str) -> str:
    """Return the run that a row belongs to."""
    return str(item.get(key, ""))
