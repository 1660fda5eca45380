"""Checks the derivatives of PyTorch operators and proves what is wrong with numbers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

_HOMES = {
    "CheckResult": "result",
    "FuzzOptions": "fuzz_options",
    "FuzzResult": "fuzz_result",
    "OperatorOptions": "options",
    "equivalent": "properties",
    "fuzz": "fuzz_operator",
    "minimize": "minimize_case",
    "operator": "check_operator",
    "property": "properties",
    "shapes": "specs",
    "tensor": "specs",
}
__all__ = list(_HOMES)

if TYPE_CHECKING:
    from .check_operator import operator as operator
    from .fuzz_operator import fuzz as fuzz
    from .fuzz_options import FuzzOptions as FuzzOptions
    from .fuzz_result import FuzzResult as FuzzResult
    from .minimize_case import minimize as minimize
    from .options import OperatorOptions as OperatorOptions
    from .properties import equivalent as equivalent
    from .properties import property as property
    from .result import CheckResult as CheckResult
    from .specs import shapes as shapes
    from .specs import tensor as tensor


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
