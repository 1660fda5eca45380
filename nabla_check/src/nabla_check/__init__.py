"""Checks the derivatives of PyTorch operators and proves what is wrong with numbers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

_HOMES = {
    "CheckResult": "result",
    "FuzzOptions": "fuzzing.fuzz_options",
    "FuzzResult": "fuzzing.fuzz_result",
    "OperatorOptions": "options",
    "equivalent": "fuzzing.properties",
    "fuzz": "fuzzing.fuzz_operator",
    "minimize": "fuzzing.minimize_case",
    "operator": "check_operator",
    "property": "fuzzing.properties",
    "shapes": "inputs.specs",
    "tensor": "inputs.specs",
}
__all__ = list(_HOMES)

if TYPE_CHECKING:
    from .check_operator import operator as operator
    from .fuzzing.fuzz_operator import fuzz as fuzz
    from .fuzzing.fuzz_options import FuzzOptions as FuzzOptions
    from .fuzzing.fuzz_result import FuzzResult as FuzzResult
    from .fuzzing.minimize_case import minimize as minimize
    from .fuzzing.properties import equivalent as equivalent
    from .fuzzing.properties import property as property
    from .inputs.specs import shapes as shapes
    from .inputs.specs import tensor as tensor
    from .options import OperatorOptions as OperatorOptions
    from .result import CheckResult as CheckResult


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
