"""The adapter as data: nothing is imported to list it."""

from __future__ import annotations

from nabla_core.declarations import Adapter

__all__ = ["ADAPTERS"]

ADAPTERS = (
    Adapter(
        name="keras",
        target="nabla_keras.callback:keras",
        summary="Watches model.fit of Keras with the torch backend.",
        requires="keras",
    ),
)
