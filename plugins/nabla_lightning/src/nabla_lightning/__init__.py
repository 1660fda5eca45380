"""Watches a training with the Trainer of Lightning."""

from __future__ import annotations

__all__: list[str] = []
