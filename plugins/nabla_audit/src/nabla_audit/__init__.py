"""Decides silent faults of a training loop exactly: by order of calls, membership and mode."""

from __future__ import annotations

__all__: list[str] = []
