"""Keeps quiet the one warning of torch that only our hooks provoke."""

from __future__ import annotations

import warnings

__all__ = ["Hush"]

_ABOUT_HOOKS = r"Using `torch\.compile\(module\)` when there are global hooks"


class Hush:
    """Ignores torch's remark that global hooks fire once more for a compiled module."""

    def __init__(self) -> None:
        self._filter: object = None

    def start(self) -> None:
        """Put our filter before the others."""
        warnings.filterwarnings("ignore", message=_ABOUT_HOOKS, category=UserWarning)
        self._filter = warnings.filters[0]

    def stop(self) -> None:
        """Remove our filter, if nobody did so before."""
        kept = [entry for entry in warnings.filters if entry is not self._filter]
        warnings.filters[:] = kept  # type: ignore[index]
