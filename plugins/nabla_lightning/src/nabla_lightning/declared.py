"""The adapter as data: nothing is imported to list it."""

from __future__ import annotations

from nabla_core.declarations import Adapter

__all__ = ["ADAPTERS"]

ADAPTERS = (
    Adapter(
        name="lightning",
        target="nabla_lightning.callback:lightning",
        summary="Watches a training with the Trainer of Lightning.",
        requires="lightning",
    ),
)
