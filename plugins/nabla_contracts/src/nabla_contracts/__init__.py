"""Invariants that the author of a training run declares, held while it runs and in tests."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

_HOMES = {
    "CheckOutcome": "one_shot",
    "Contract": "declaration",
    "ContractSettings": "settings",
    "ContractViolation": "violation",
    "InputAbsent": "view",
    "Judgement": "judgement",
    "Range": "view",
    "StepView": "view",
    "assert_step": "asserting",
    "check": "one_shot",
    "contract": "custom",
    "contract_detectors": "detectors",
    "gradient": "gradient_contracts",
    "loss": "loss_contracts",
    "parameter": "parameter_contracts",
    "tensor": "tensor_contracts",
    "training": "loss_contracts",
}
__all__ = list(_HOMES)

if TYPE_CHECKING:
    from .asserting import assert_step as assert_step
    from .custom import contract as contract
    from .declaration import Contract as Contract
    from .detectors import contract_detectors as contract_detectors
    from .gradient_contracts import gradient as gradient
    from .judgement import Judgement as Judgement
    from .loss_contracts import loss as loss
    from .loss_contracts import training as training
    from .one_shot import CheckOutcome as CheckOutcome
    from .one_shot import check as check
    from .parameter_contracts import parameter as parameter
    from .settings import ContractSettings as ContractSettings
    from .tensor_contracts import tensor as tensor
    from .view import InputAbsent as InputAbsent
    from .view import Range as Range
    from .view import StepView as StepView
    from .violation import ContractViolation as ContractViolation


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
