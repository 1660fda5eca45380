"""TensorBoard: issues as text and the curves of a run as scalars, in event files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

from .curves import curves_of
from .options import TrackerOptions
from .wording import clipped, heading, story, verdict

if TYPE_CHECKING:
    from nabla_core.config import Config
    from nabla_core.issue import Issue
    from nabla_core.report import Report

__all__ = ["EventLog", "open_sink", "tensorboard"]


class Writer(Protocol):
    """The part of ``torch.utils.tensorboard.SummaryWriter`` that is used."""

    def add_text(self, tag: str, text_string: str, global_step: int | None = None) -> None:
        """Write a text, shown as Markdown."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Write a number."""

    def flush(self) -> None:
        """Write what is waiting to the disk."""

    def close(self) -> None:
        """Flush and let go of the file."""


class EventLog:
    """Writes event files; a new file after each report, so that it may be used again.

    Args:
        log_dir: folder of the event files; made when the first thing is written.
    """

    def __init__(self, log_dir: str) -> None:
        self._folder = log_dir
        self._writer: Writer | None = None

    def __call__(self, issue: Issue) -> None:
        """Write an issue, at once."""
        writer = self._open()
        writer.add_text(
            f"nabla/{issue.rule}", _code(f"{heading(issue)}\n{story(issue)}"), issue.step
        )
        writer.flush()

    def take_report(self, report: Report) -> None:
        """Write the curves of the run, the number of issues by severity, and the outcome."""
        writer = self._open()
        last = max(report.run.steps - 1, 0)
        for curve in curves_of(report):
            for step, value in zip(curve.steps, curve.values, strict=True):
                writer.add_scalar(curve.key, value, step)
        for label, number in report.counts.items():
            writer.add_scalar(f"nabla/issues/{label}", number, last)
        writer.add_text("nabla/report", _code(verdict(report)), last)
        writer.close()
        self._writer = None

    def _open(self) -> Writer:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = cast("Callable[[str], Writer]", SummaryWriter)(self._folder)
        return self._writer


def tensorboard(log_dir: str | os.PathLike[str] = "runs/nabla") -> EventLog:
    """Return an ``on_alert`` that writes for TensorBoard.

    Args:
        log_dir: folder of the event files.

    Example::

        nabla.watch(model, optimizer, on_alert=tensorboard(log_dir="runs/today"))
    """
    return EventLog(os.fspath(log_dir))


def open_sink(config: Config) -> EventLog:
    """Open the sink ``tensorboard``."""
    return EventLog(config.options(TrackerOptions).tensorboard_dir)


def _code(text: str) -> str:
    """TensorBoard reads Markdown: an indented block shows any text as it is."""
    return "\n".join(f"    {line}" for line in clipped(text).splitlines())
