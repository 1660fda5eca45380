"""Watches model.fit of Keras with the torch backend."""

from __future__ import annotations

__all__: list[str] = []
