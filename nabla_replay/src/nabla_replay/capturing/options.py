"""What a person may ask of a capture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypedDict

from nabla_core.errors import UsageError
from nabla_guard.holding import Holdable

__all__ = ["CaptureArguments", "CaptureOptions", "capture_options"]

DEFAULT_ROOT = ".nabla/runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """How a run is captured.

    Attributes:
        root: folder that gets one folder per run.
        checkpoint_every: steps between two checkpoints; one is taken at the start besides.
        budget: share of a step that recording may cost; ``None`` fingerprints everything in every
            step.
        trace_modules: fingerprint the calls of every module in the first step after each
            checkpoint, so that a divergence can be traced to its module.
        resume: folder of a run to go on with, instead of a new one.
        contracts: what must hold in every step: those of ``nabla.contracts``, and names of
            configured ones.
        raise_on_failure: end the run at the first contract that is broken.
        fsync_s: a loss of power costs at most the records of so many seconds.
    """

    root: str | Path = DEFAULT_ROOT
    checkpoint_every: int = 1000
    budget: float | None = 0.02
    trace_modules: bool = True
    resume: str | Path | None = None
    contracts: Sequence[str | Holdable] = ()
    raise_on_failure: bool = False
    fsync_s: float = 1.0

    def __post_init__(self) -> None:
        if type(self.checkpoint_every) is not int or self.checkpoint_every < 1:
            raise UsageError(
                f"capture(checkpoint_every={self.checkpoint_every!r}): needs a whole number of "
                "steps, at least 1"
            )
        if self.budget is not None and not self.budget > 0:
            raise UsageError(
                f"capture(budget={self.budget!r}): needs a share of a step above 0, such as 0.02, "
                "or None to fingerprint everything in every step"
            )
        if not self.fsync_s > 0:
            raise UsageError(f"capture(fsync_s={self.fsync_s!r}): needs a time above 0 s")


class CaptureArguments(TypedDict, total=False):
    """Keyword arguments of :func:`nabla_replay.capture`: parts of the program, and
    :class:`CaptureOptions`."""

    scheduler: object
    scaler: object
    extra: Mapping[str, object] | None
    loader: Iterable[object] | None
    root: str | Path
    checkpoint_every: int
    budget: float | None
    trace_modules: bool
    resume: str | Path | None
    contracts: Sequence[str | Holdable] | None
    raise_on_failure: bool
    fsync_s: float


def capture_options(given: Mapping[str, object]) -> CaptureOptions:
    """Return the options among the keyword arguments.

    Raises:
        UsageError: one is unknown or out of range.
    """
    names = [field.name for field in fields(CaptureOptions)]
    parts = ("scheduler", "scaler", "extra", "loader")
    unknown = [name for name in given if name not in names and name not in parts]
    if unknown:
        raise UsageError(
            f"capture({unknown[0]}=...): unknown option; the options are "
            f"{', '.join((*parts, *names))}"
        )
    chosen = {name: given[name] for name in names if name in given}
    if chosen.get("contracts", ()) is None:
        del chosen["contracts"]
    return CaptureOptions(**chosen)  # type: ignore[arg-type]
