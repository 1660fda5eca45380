"""Runs the trials of a campaign, here or in the processes of an executor, until one fails."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import lru_cache

from nabla_core.errors import UsageError

from .outcome import Finding, Outcome
from .progress import Progress
from .recipe import Case
from .sampling import Recipe, Sampler
from .subject import Subject
from .trial import Trial, TrialOptions

__all__ = ["Campaign", "Search", "search"]

_DRAWS_PER_TRIAL = 5
"""Cases that the operator or its reference refuses are replaced, up to this many in all."""

_CHUNK = 16

_SIZES = re.compile(r"(?<![A-Za-z_])\d+(?:x\d+)*")
"""Sizes in a refusal differ from case to case; the reason does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """Everything that a process needs to run any trial; picklable when its functions are.

    Attributes:
        subject: the operator.
        options: what a trial compares.
        recipe: what is drawn.
        fitted: the part of it that the operator was seen to accept, drawn more often.
        seed: of the campaign.
    """

    subject: Subject
    options: TrialOptions
    recipe: Recipe
    fitted: Recipe
    seed: int

    def sampler(self) -> Sampler:
        """Return the source of cases."""
        return Sampler(self.recipe, self.seed, self.fitted)

    def run(self, start: int, stop: int) -> list[tuple[int, Outcome]]:
        """Run the trials ``start`` to ``stop``, no further than the first that fails."""
        sampler = self.sampler()
        trial = Trial(self.subject, self.options)
        outcomes = []
        for number in range(start, stop):
            outcome = trial.run(sampler.case(number))
            outcomes.append((number, outcome))
            if outcome.state == "failed":
                break
        return outcomes


@dataclass(slots=True, kw_only=True)
class Search:
    """What the trials found.

    Attributes:
        compared: trials that passed or failed.
        skipped: counts of the others by reason.
        failing: the first failing case.
        recipe: from which it was drawn.
        finding: its fault.
        stopped: why fewer trials were run than asked for.
    """

    compared: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    failing: Case | None = None
    recipe: Recipe | None = None
    finding: Finding | None = None
    stopped: str = ""


def search(
    campaign: Campaign,
    trials: int,
    executor: Executor | None,
    budget_s: float | None,
    progress: Progress,
) -> Search:
    """Run until a trial fails, ``trials`` cases were compared, or the budget is spent.

    The outcome does not depend on the executor: trials are judged in the order of their numbers.

    Raises:
        UsageError: the campaign cannot be sent to the executor's processes.
    """
    found = Search()
    sampler = campaign.sampler()
    deadline_s = None if budget_s is None else time.monotonic() + budget_s
    limit = trials * _DRAWS_PER_TRIAL
    stream = _local(campaign, limit) if executor is None else _remote(campaign, limit, executor)
    for number, outcome in stream:
        _count(found, outcome)
        if outcome.state == "failed":
            found.failing = sampler.case(number)
            found.recipe = sampler.recipe_of(number)
            found.finding = outcome.finding
            break
        progress.update(found.compared)
        if found.compared >= trials:
            break
        if deadline_s is not None and time.monotonic() > deadline_s:
            found.stopped = f"the budget of {budget_s:g} s is spent"
            break
    return found


def _count(found: Search, outcome: Outcome) -> None:
    if outcome.state in ("passed", "failed"):
        found.compared += 1
    else:
        found.skipped[_SIZES.sub("#", outcome.reason)] += 1


def _local(campaign: Campaign, limit: int) -> Iterator[tuple[int, Outcome]]:
    for number in range(limit):
        yield from campaign.run(number, number + 1)


def _remote(campaign: Campaign, limit: int, executor: Executor) -> Iterator[tuple[int, Outcome]]:
    _check_portable(campaign, executor)
    starts = iter(range(0, limit, _CHUNK))
    running: list[Future[list[tuple[int, Outcome]]]] = []
    try:
        while True:
            while len(running) < _in_flight():
                start = next(starts, None)
                if start is None:
                    break
                stop = min(start + _CHUNK, limit)
                running.append(executor.submit(_run_chunk, campaign, start, stop))
            if not running:
                return
            yield from running.pop(0).result()
    finally:
        for future in running:
            future.cancel()


def _run_chunk(campaign: Campaign, start: int, stop: int) -> list[tuple[int, Outcome]]:
    _one_thread()
    return campaign.run(start, stop)


@lru_cache(maxsize=1)
def _one_thread() -> None:
    """Processes that all use every core slow each other down."""
    import multiprocessing

    if multiprocessing.parent_process() is not None:
        import torch

        torch.set_num_threads(1)


def _in_flight() -> int:
    return 2 * (os.cpu_count() or 1)


def _check_portable(campaign: Campaign, executor: Executor) -> None:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing.reduction import ForkingPickler

    if not isinstance(executor, ProcessPoolExecutor):
        return
    try:
        ForkingPickler.dumps(campaign)
    except Exception as error:
        raise UsageError(
            f"the operator cannot be sent to another process ({type(error).__name__}: {error}): "
            "define candidate, reference and properties at the top of a module, or leave out "
            "executor"
        ) from error
