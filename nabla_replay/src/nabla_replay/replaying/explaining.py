"""``nabla replay RUN --explain-step N``: what happens inside a recorded step, op by op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nabla_core.errors import UsageError
from nabla_core.report import Report, Section

from ..store.reader import RunReader
from ..wording import amount
from .fitting import fitted
from .habits import takes_ahead
from .history import Segment, segments_of
from .program import program_of
from .spans import spans
from .tables import fingerprinter_for
from .window import Window

__all__ = ["explain_step"]


def explain_step(
    run: str | Path, step: int, *, build: Callable[[], object], rank: int = 0
) -> Report:
    """Restore the nearest checkpoint, and watch one step in the guard's deep mode.

    Args:
        run: folder of the run.
        step: recorded step to explain, or the one after the last: in which the program ended.
        build: makes the program, as of :func:`nabla_replay.replay`.
        rank: whose record.

    Returns:
        The guard's report of that one step: where the first bad number was born, if there is one.

    Raises:
        RecordError: the step was not recorded, or has no checkpoint before it.
        UsageError: ``build`` gives no program that fits the run, or its loop took batches ahead of
            their steps.
    """
    from nabla_guard import guard

    with RunReader.open(run) as reader:
        program = fitted(program_of({"build": build}), reader, rank)
        segments = segments_of(reader.log(rank))
        segment, index = _find(segments, step)
        if takes_ahead(segment):
            raise UsageError(
                f"step {step} cannot be executed alone: the recorded loop took batches ahead of "
                "their steps, and which of them this step used is known only to a replay of the run"
            )
        found = fingerprinter_for(reader, program, rank, segment.number)
        window = Window(reader, segment, program, found)
        start = window.restore(index)
        for _ in window.run(start, index - 1, lambda _: False):
            continue
        optimizers = list(program.parts.optimizers) or None
        watching = guard(program.parts.model, optimizer=optimizers, mode="deep", shadow="off")
        with watching as monitor:
            window.execute(index)
        report = monitor.report()
    lines = [f"step 0 of this report is step {step} of the run; {_before(index - start)}"]
    if index == len(segment.steps):
        lines.append("the run ended in this step: it was begun there, and never recorded")
    section = Section(title=f"Step {step} of {Path(run).name}", lines=tuple(lines))
    told = replace(report.run, command=f"nabla replay {run} --explain-step {step}")
    return replace(report, run=told, sections=(section, *report.sections))


def _find(segments: tuple[Segment, ...], step: int) -> tuple[Segment, int]:
    """Return the segment of a step, and its index there."""
    last = segments[-1] if segments else None
    if last is not None and last.steps and step == last.coming:
        return last, len(last.steps)
    segment, index, _ = spans(segments, step, step)[-1]
    return segment, index


def _before(executed: int) -> str:
    if not executed:
        return "the state before it was restored from a checkpoint"
    return (
        f"{amount(executed, 'step')} from the checkpoint before it on came first, and only executed"
    )
