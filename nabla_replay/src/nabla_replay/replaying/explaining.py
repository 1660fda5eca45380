"""``nabla replay RUN --explain-step N``: what happens inside a recorded step, op by op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nabla_core.report import Report, Section

from ..store.reader import RunReader
from .entry import spans
from .history import segments_of
from .program import program_of
from .tables import fingerprinter_for
from .window import Window

__all__ = ["explain_step"]


def explain_step(
    run: str | Path, step: int, *, build: Callable[[], object], rank: int = 0
) -> Report:
    """Restore the nearest checkpoint, and watch one step in the guard's deep mode.

    Args:
        run: folder of the run.
        step: recorded step to explain.
        build: makes the program, as of :func:`nabla_replay.replay`.
        rank: whose record.

    Returns:
        The guard's report of that one step: where the first bad number was born, if there is one.

    Raises:
        RecordError: the step was not recorded, or has no checkpoint before it.
        UsageError: ``build`` gives no program that fits the run.
    """
    from nabla_guard import guard

    program = program_of({"build": build})
    with RunReader.open(run) as reader:
        segments = segments_of(reader.log(rank))
        segment, index, _ = spans(segments, step, step)[-1]
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
    before = "the state before it was restored from a checkpoint"
    if index > start:
        before = f"the {index - start} steps from the checkpoint before it on were executed first"
    section = Section(
        title=f"Step {step} of {Path(run).name}",
        lines=(f"step 0 of this report is step {step} of the run; {before}",),
    )
    return replace(report, sections=(section, *report.sections))
