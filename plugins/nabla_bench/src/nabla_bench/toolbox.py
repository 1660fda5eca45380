# mypy: disable-error-code="no-untyped-call"
# torch declares no types for backward and split
"""What a planted program is given: reproducible data, and the tools of nabla by their public name.

The distributions that are judged are no dependencies: what is missing is said (``bugs.py`` knows
what each program needs), and what is there is called as a person calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nabla_core.facade import public_name
from nabla_core.issue import Issue

__all__ = ["Batch", "Judged", "Toolbox", "WatchedRows", "classifier", "tool"]

Batch = tuple[Tensor, Tensor]
Step = Callable[[], object]

SAMPLES, FEATURES, CLASSES, BATCH = 256, 8, 3, 32


class Judged(Protocol):
    """Any result of nabla."""

    @property
    def issues(self) -> tuple[Issue, ...]:
        """What was found."""


class WatchedRows(Protocol):
    """What ``nabla.watch`` returns, as far as the programs use it."""

    def log(self, step: int | None = None, **signals: float | None) -> list[Issue]:
        """Take in a row."""

    def finish(self) -> Judged:
        """Judge the whole run."""


def tool(name: str) -> Callable[..., Judged]:
    """Return the function of nabla with this dotted public name, e.g. ``"trace.samples"``."""
    found = public_name(name.partition(".")[0])
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return cast("Callable[..., Judged]", found)


def classifier(width: int = 24) -> nn.Sequential:
    """Return a small model for the data of a :class:`Toolbox`."""
    return nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, CLASSES))


class Toolbox:
    """Data drawn from one seed, and loops that are watched.

    Args:
        seed: of the data and of everything that is drawn while the program runs.
    """

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.x = torch.randn(SAMPLES, FEATURES)
        self.y = self.x[:, :CLASSES].argmax(-1)

    def batches(self, steps: int) -> Iterator[Batch]:
        """Yield ``steps`` batches of 32 samples, shuffled anew in each round.

        Yields:
            Inputs ``[32, 8]`` and labels ``[32]``; the label is the largest of three features.
        """
        rows: list[Tensor] = []
        for _ in range(steps):
            if not rows:
                rows = list(torch.randperm(SAMPLES).split(BATCH))
            chosen = rows.pop()
            yield self.x[chosen], self.y[chosen]

    def guarded(
        self, model: nn.Module, optimizer: Optimizer, train: Step, **options: object
    ) -> tuple[Issue, ...]:
        """Run a training under ``nabla.guard`` and return what it found."""
        guard = cast("Callable[..., AbstractContextManager[object]]", public_name("guard"))
        monitor = guard(model, optimizer=optimizer, **options)
        with monitor:
            train()
        report = cast("Callable[[], Judged]", getattr(monitor, "report"))  # noqa: B009
        return report().issues

    def watched(self, model: nn.Module, optimizer: Optimizer, train: Step) -> tuple[Issue, ...]:
        """Run a training under ``nabla.watch`` and return what it found."""
        watch = cast("Callable[..., WatchedRows]", public_name("watch"))
        run = watch(model, optimizer, quiet=True)
        try:
            train()
        finally:
            judged = run.finish()
        return judged.issues

    def logged(self, rows: Iterable[dict[str, float]]) -> tuple[Issue, ...]:
        """Give rows of a run to ``nabla.watch`` and return what it found."""
        watch = cast("Callable[..., WatchedRows]", public_name("watch"))
        run = watch(quiet=True)
        for step, row in enumerate(rows):
            run.log(step, **row)
        return run.finish().issues
