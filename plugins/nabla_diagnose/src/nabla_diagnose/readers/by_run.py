"""Rows of several runs or ranks in one file, told apart by a column that names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .naming import plain_name

__all__ = ["RUN_NAMES", "run_column", "run_of"]

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
    for key, said in values.items():
        changes = sum(a != b for a, b in zip(said, said[1:], strict=False))
        if changes >= len(set(map(str, said))) > 1:
            return key
    return None


def run_of(item: Mapping[str, object], key: str) -> str:
    """Return the run that a row belongs to."""
    return str(item.get(key, ""))
