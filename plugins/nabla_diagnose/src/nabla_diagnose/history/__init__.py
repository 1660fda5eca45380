"""Small summaries of earlier runs, kept under ``.nabla/history``."""

from __future__ import annotations

__all__: list[str] = []
