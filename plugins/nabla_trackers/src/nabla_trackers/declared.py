"""The sinks as data: nothing is imported to list them."""

from __future__ import annotations

from nabla_core.declarations import Sink

__all__ = ["SINKS"]

SINKS = (
    Sink(
        name="tensorboard",
        target="nabla_trackers.event_log:open_sink",
        summary="Issues as text and the curves of the run as scalars, in event files.",
        requires="tensorboard",
    ),
    Sink(
        name="wandb",
        target="nabla_trackers.hosted_run:open_sink",
        summary="Issues as alerts and tables of the W&B run that is active.",
        requires="wandb",
    ),
    Sink(
        name="mlflow",
        target="nabla_trackers.experiment:open_sink",
        summary="Issues as tags, curves as metrics, the report as a file of the MLflow run.",
        requires="mlflow",
    ),
)
