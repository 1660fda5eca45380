"""Which modules of a model may run in half precision, and why the others may not."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .auditing import audit as audit
    from .entrance import precision as precision
    from .result import Headroom as Headroom
    from .result import Measurement as Measurement
    from .result import ModulePrecision as ModulePrecision
    from .result import PrecisionReport as PrecisionReport

_HOMES = {
    "Headroom": "result",
    "Measurement": "result",
    "ModulePrecision": "result",
    "PrecisionReport": "result",
    "audit": "auditing",
    "precision": "entrance",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
