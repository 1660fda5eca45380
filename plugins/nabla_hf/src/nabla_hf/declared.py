"""The adapter as data: nothing is imported to list it."""

from __future__ import annotations

from nabla_core.declarations import Adapter

__all__ = ["ADAPTERS"]

ADAPTERS = (
    Adapter(
        name="hf",
        target="nabla_hf.callback:hf",
        summary="Watches a training with the Trainer of transformers.",
        requires="transformers",
    ),
)
