"""The runs under one folder, in a few numbers each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from nabla_core.errors import InputError

from .reader import RunReader
from .survey import LogSurvey

__all__ = ["RunStatus", "RunSummary", "captured_runs", "summarise_run"]

RunStatus: TypeAlias = Literal["closed", "not closed", "unreadable"]
"""Ended on purpose; killed or still running; not to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run.

    Attributes:
        path: folder of the run.
        run_id: name of the run.
        created_s: wall clock at its start; 0 if it cannot be read.
        status: see :data:`RunStatus`.
        ranks: how many logs there are.
        segments: 1, and one more for each resume, in the log of the first rank.
        first_step: of the first rank; None without steps.
        last_step: of the first rank; None without steps.
        last_loss: of the last step, if it has one.
        checkpoints: over all ranks.
        damage: damaged lines in the log of the first rank.
        reason: why it cannot be read.
    """

    path: Path
    run_id: str
    created_s: float = 0.0
    status: RunStatus = "unreadable"
    ranks: int = 0
    segments: int = 0
    first_step: int | None = None
    last_step: int | None = None
    last_loss: float | None = None
    checkpoints: int = 0
    damage: int = 0
    reason: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "path": str(self.path),
            "run_id": self.run_id,
            "created_s": self.created_s,
            "status": self.status,
            "ranks": self.ranks,
            "segments": self.segments,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "last_loss": None if self.last_loss is None else str(self.last_loss),
            "checkpoints": self.checkpoints,
            "damage": self.damage,
            "reason": self.reason,
        }


def captured_runs(root: str | Path = ".nabla/runs") -> tuple[RunSummary, ...]:
    """Return the runs under a folder, the latest last; none if there is no such folder.

    A run that cannot be read is listed with the reason. Links are passed over.
    """
    folder = Path(root)
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return ()
    found = [summarise_run(folder / name) for name in names]
    return tuple(sorted(found, key=lambda summary: (summary.created_s, summary.run_id)))


def summarise_run(path: Path) -> RunSummary:
    """Return one run in a few numbers; an unreadable one with the reason."""
    try:
        with RunReader.open(path) as reader:
            surveys = [reader.survey(rank) for rank in reader.ranks]
            return _summary(reader, surveys)
    except InputError as error:
        return RunSummary(path=path, run_id=path.name, reason=str(error))


def _summary(reader: RunReader, surveys: list[LogSurvey]) -> RunSummary:
    first = surveys[0] if surveys else LogSurvey()
    return RunSummary(
        path=reader.folder,
        run_id=reader.header.run_id,
        created_s=reader.header.created_s,
        status="closed" if first.has_ended else "not closed",
        ranks=len(surveys),
        segments=first.segments,
        first_step=first.first.step if first.first is not None else None,
        last_step=first.last.step if first.last is not None else None,
        last_loss=first.last.loss if first.last is not None else None,
        checkpoints=sum(len(survey.checkpoints) for survey in surveys),
        damage=first.damaged,
    )
