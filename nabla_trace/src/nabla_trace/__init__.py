"""Explains gradients: which loss fights which, which sample dominates, is the step too big."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

_HOMES = {
    "Attachment": "live.attachment",
    "LossReport": "loss_result",
    "LossTrace": "loss_tracing",
    "NoiseEstimator": "noise",
    "SamplesResult": "samples_result",
    "TraceOptions": "options",
    "WidthResult": "width_result",
    "attach": "live.attachment",
    "coordinate_check": "width_check",
    "gradient": "loss_tracing",
    "losses": "loss_tracing",
    "rule_for": "ghost.third_party",
    "samples": "sampling",
}
__all__ = list(_HOMES)

if TYPE_CHECKING:
    from .ghost.third_party import rule_for as rule_for
    from .live.attachment import Attachment as Attachment
    from .live.attachment import attach as attach
    from .loss_result import LossReport as LossReport
    from .loss_tracing import LossTrace as LossTrace
    from .loss_tracing import gradient as gradient
    from .loss_tracing import losses as losses
    from .noise import NoiseEstimator as NoiseEstimator
    from .options import TraceOptions as TraceOptions
    from .samples_result import SamplesResult as SamplesResult
    from .sampling import samples as samples
    from .width_check import coordinate_check as coordinate_check
    from .width_result import WidthResult as WidthResult


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
