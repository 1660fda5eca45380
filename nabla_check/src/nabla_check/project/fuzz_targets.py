"""A fuzzing campaign for an operator that is named by text."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from ..fuzzing.fuzz_operator import fuzz
from ..fuzzing.fuzz_result import FuzzResult
from .manifest_run import recipe_specs
from .targets import load_target

__all__ = ["FuzzRequest", "fuzz_target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzRequest:
    """What the command line asks for.

    Attributes:
        reference: ``module:function`` or ``file.py:function`` of the truth, if any.
        recipes: axes of every input.
        dtypes: names of dtypes to draw.
        layouts: names of layouts to draw.
        trials: cases to compare.
        seed: of the campaign.
        jobs: processes; one is this process.
        budget_s: seconds after which no further trial starts.
        artifact_dir: folder for evidence.
    """

    reference: str | None
    recipes: tuple[str, ...]
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    trials: int = 100
    seed: int = 0
    jobs: int = 1
    budget_s: float | None = None
    artifact_dir: str | None = None


def fuzz_target(
    target: str, request: FuzzRequest, *, show_progress: bool | None = None
) -> FuzzResult:
    """Fuzz one target.

    Raises:
        UsageError: a recipe, dtype or layout cannot be used.
        InputError: the target or the reference cannot be imported.
    """
    candidate = load_target(target)[0]
    reference = None if request.reference is None else load_target(request.reference)[0]
    texts = (target,) if request.reference is None else (target, request.reference)
    with _executor(request.jobs, texts) as executor:
        return fuzz(
            candidate=candidate,
            reference=reference,
            inputs=recipe_specs(request.recipes, request.dtypes, request.layouts),
            trials=request.trials,
            seed=request.seed,
            executor=executor,
            budget_s=request.budget_s,
            artifact_dir=request.artifact_dir,
            show_progress=show_progress,
        )


@contextmanager
def _executor(jobs: int, targets: tuple[str, ...]) -> Iterator[Executor | None]:
    if jobs == 1:
        yield None
        return
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    with ProcessPoolExecutor(
        jobs, mp_context=spawn, initializer=_import, initargs=(targets,)
    ) as pool:
        yield pool


def _import(targets: tuple[str, ...]) -> None:
    """Load targets in a new process, where modules made from files are not yet known."""
    for target in targets:
        load_target(target)
