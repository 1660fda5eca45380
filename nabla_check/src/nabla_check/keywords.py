"""Keywords of a call that are bound to an options class."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.errors import UsageError
from nabla_core.nearest import nearest

__all__ = ["refuse_unknown"]


def refuse_unknown(keywords: Iterable[str], known: list[str]) -> None:
    """Check that all keywords are known.

    Raises:
        UsageError: one is not; the nearest known one is named.
    """
    for name in keywords:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
            raise UsageError(f"unknown option {name!r}: {hint}")
