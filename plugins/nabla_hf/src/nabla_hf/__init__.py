"""Watches a training with the Trainer of transformers."""

from __future__ import annotations

__all__: list[str] = []
