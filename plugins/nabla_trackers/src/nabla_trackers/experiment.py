"""MLflow: issues as tags, curves as metrics, and the report as a file of the person's own run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from .curves import curves_of
from .errors import NoActiveRunError
from .wording import clipped, story, verdict

if TYPE_CHECKING:
    from types import ModuleType

    from nabla_core.config import Config
    from nabla_core.issue import Issue
    from nabla_core.report import Report

__all__ = ["ExperimentRun", "mlflow", "open_sink"]

_MOST_TAG_CHARACTERS = 500
_BATCH = 1_000
"""Metrics that a tracking server takes at once."""


class Sent(Protocol):
    """What was sent in the background."""

    def wait(self) -> None:
        """Wait until it has arrived, and raise if it has not."""


class Client(Protocol):
    """The part of ``mlflow.MlflowClient`` that is used."""

    def set_tag(self, run_id: str, key: str, value: str, synchronous: bool) -> Sent | None:
        """Set a tag."""

    def log_batch(self, run_id: str, metrics: Sequence[object]) -> object:
        """Log metrics."""

    def log_text(self, run_id: str, text: str, artifact_file: str) -> None:
        """Keep a file."""


class ExperimentRun:
    """Sends to the MLflow run that is active, or to a given one. Waits for one that starts later.

    What is found is sent in the background: a slow server must not hold up the training.

    Args:
        run_id: send to this run.
    """

    def __init__(self, run_id: str | None) -> None:
        self._given = run_id
        self._run_id = run_id
        self._waiting: list[Issue] = []
        self._tagged: set[str] = set()
        self._sent: list[Sent] = []

    def __call__(self, issue: Issue) -> None:
        """Tag the run with the first issue of each rule."""
        self._waiting.append(issue)
        run_id = self._find("active_run")
        if run_id is not None:
            self._tag(_client(), run_id)

    def take_report(self, report: Report) -> None:
        """Send the outcome, the curves and ``nabla/report.json``; wait for what is on its way.

        Raises:
            NoActiveRunError: the process has had no run.
        """
        run_id = self._find("last_active_run")
        if run_id is None:
            raise NoActiveRunError(
                "this process has had no MLflow run, so nothing was sent; "
                "call mlflow.start_run() before the training"
            )
        client = _client()
        self._tag(client, run_id)
        for sent in self._sent:
            sent.wait()
        _set(client, run_id, "nabla.passed", str(report.passed).lower())
        _set(client, run_id, "nabla.verdict", verdict(report))
        for batch in _batches(list(_metrics(report))):
            client.log_batch(run_id, metrics=batch)
        client.log_text(run_id, json.dumps(report.to_dict(), indent=2), "nabla/report.json")
        self._run_id, self._sent, self._tagged = self._given, [], set()

    def _find(self, finder: str) -> str | None:
        """Ask for the run until there is one: its end does not end our interest in it."""
        if self._run_id is None and "mlflow" in sys.modules:
            found = vars(_package())[finder]()
            self._run_id = None if found is None else found.info.run_id
        return self._run_id

    def _tag(self, client: Client, run_id: str) -> None:
        waiting, self._waiting = self._waiting, []
        for issue in waiting:
            if issue.rule in self._tagged:
                continue
            self._tagged.add(issue.rule)
            value = clipped(f"{issue.severity.label}: {story(issue)}", _MOST_TAG_CHARACTERS)
            sent = client.set_tag(run_id, f"nabla.{issue.rule}", value, synchronous=False)
            if sent is not None:
                self._sent.append(sent)


def mlflow(run_id: str | None = None) -> ExperimentRun:
    """Return an ``on_alert`` that writes into an MLflow run.

    Args:
        run_id: send to this run; by default to the one that is active.

    Example::

        with mlflow.start_run():
            nabla.watch(model, optimizer, on_alert=nabla_trackers.mlflow())
    """
    return ExperimentRun(run_id)


def open_sink(config: Config) -> ExperimentRun:
    """Open the sink ``mlflow``; it has no settings."""
    return ExperimentRun(None)


def _package() -> ModuleType:
    from importlib import import_module

    return import_module("mlflow")


def _client() -> Client:
    return cast("Callable[[], Client]", _package().MlflowClient)()


def _set(client: Client, run_id: str, key: str, value: str) -> None:
    client.set_tag(run_id, key, clipped(value, _MOST_TAG_CHARACTERS), synchronous=True)


def _metrics(report: Report) -> Iterator[object]:
    make = cast("Callable[[str, float, int, int], object]", _package().entities.Metric)
    now_ms = int(time.time() * 1_000)
    for label, number in report.counts.items():
        yield make(f"nabla/issues/{label}", float(number), now_ms, max(report.run.steps - 1, 0))
    for curve in curves_of(report):
        for step, value in zip(curve.steps, curve.values, strict=True):
            yield make(curve.key, float(value), now_ms, step)


def _batches(metrics: Sequence[object]) -> Iterator[Sequence[object]]:
    for start in range(0, len(metrics), _BATCH):
        yield metrics[start : start + _BATCH]
