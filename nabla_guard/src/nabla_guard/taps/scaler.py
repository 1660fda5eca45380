"""Gradient scalers: which tensor is the loss before it was multiplied by the scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .patching import Patches, Replacement

if TYPE_CHECKING:
    from .wire import Wire

__all__ = ["ScalerTap", "was_skipped"]


def was_skipped(optimizer: object) -> bool:
    """Whether a fused optimizer is going to skip this step because its scaler found an infinity.

    Other optimizers are not called at all in that case. Reads a tensor: cold path only.
    """
    found = getattr(optimizer, "found_inf", None)
    return isinstance(found, Tensor) and bool(found.any())


class ScalerTap:
    """Tells which loss a scaled loss belongs to."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def install(self, patches: Patches) -> tuple[str, ...]:
        """Replace ``GradScaler.scale``; return what this version of torch lacks."""
        found = patches.replace(torch.amp.GradScaler, "scale", self._wrap)
        return () if found else ("torch.amp.GradScaler.scale",)

    def _wrap(self, original: Replacement) -> Replacement:
        wire = self._wire

        def scale(scaler: torch.amp.GradScaler, outputs: object) -> object:
            scaled = original(scaler, outputs)
            if isinstance(outputs, Tensor) and isinstance(scaled, Tensor) and scaled is not outputs:
                loss = outputs.detach()
                for listener in wire.listeners:
                    try:
                        listener.loss_scaled(loss, scaled)
                    except Exception as error:
                        wire.drop(listener, error)
            return scaled

        return scale
