"""Captures a run for almost nothing, replays it bit by bit, and finds its first bad step."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bisecting.entry import bisect as bisect
    from .bisecting.predicates import StateView as StateView
    from .bisecting.predicates import metric_greater_than as metric_greater_than
    from .bisecting.predicates import metric_less_than as metric_less_than
    from .bisecting.predicates import metric_nonfinite as metric_nonfinite
    from .bisecting.result import BisectResult as BisectResult
    from .capturing.context import Capture as Capture
    from .capturing.context import capture as capture
    from .counterfactual.entry import what_if as what_if
    from .counterfactual.result import WhatIf as WhatIf
    from .ranks.entry import compare_ranks as compare_ranks
    from .ranks.result import RankComparison as RankComparison
    from .replaying.entry import replay as replay
    from .replaying.explaining import explain_step as explain_step
    from .replaying.observation import ReplayObservation as ReplayObservation
    from .replaying.result import ReplayResult as ReplayResult

__all__ = [
    "BisectResult",
    "Capture",
    "RankComparison",
    "ReplayObservation",
    "ReplayResult",
    "StateView",
    "WhatIf",
    "bisect",
    "capture",
    "compare_ranks",
    "explain_step",
    "metric_greater_than",
    "metric_less_than",
    "metric_nonfinite",
    "replay",
    "what_if",
]

_HOMES = {
    "BisectResult": "bisecting.result",
    "Capture": "capturing.context",
    "RankComparison": "ranks.result",
    "ReplayObservation": "replaying.observation",
    "ReplayResult": "replaying.result",
    "StateView": "bisecting.predicates",
    "WhatIf": "counterfactual.result",
    "bisect": "bisecting.entry",
    "capture": "capturing.context",
    "compare_ranks": "ranks.entry",
    "explain_step": "replaying.explaining",
    "metric_greater_than": "bisecting.predicates",
    "metric_less_than": "bisecting.predicates",
    "metric_nonfinite": "bisecting.predicates",
    "replay": "replaying.entry",
    "what_if": "counterfactual.entry",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
