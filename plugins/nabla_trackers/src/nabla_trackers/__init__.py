"""Sends what nabla finds to TensorBoard, W&B and MLflow; imports none of them by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .event_log import tensorboard as tensorboard
    from .experiment import mlflow as mlflow
    from .hosted_run import wandb as wandb

_HOMES = {"tensorboard": "event_log", "mlflow": "experiment", "wandb": "hosted_run"}

__all__ = ["mlflow", "tensorboard", "wandb"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return list(__all__)
