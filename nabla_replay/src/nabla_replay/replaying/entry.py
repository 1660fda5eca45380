"""``nabla.replay``: execute recorded steps again and compare them bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from ..store.reader import RunReader
from .course import Course
from .options import ReplayArguments, program_arguments, replay_options
from .result import ReplayResult
from .stage import Stage

__all__ = ["replay"]


def replay(run: str | Path, **arguments: Unpack[ReplayArguments]) -> ReplayResult:
    """Execute recorded steps again from the nearest checkpoint, and compare each bit by bit.

    The recorded environment is compared first: where it breaks bit-exactness, that is said, and a
    difference is not blamed on the run. State, random generators and the place in the data are
    restored; the data comes from ``loader``.

    Args:
        run: folder of the run.
        **arguments: the program: ``build``, a function that returns an object (or a mapping) with
            ``model``, ``optimizer``, ``scheduler``, ``scaler``, ``extra``, ``loader`` as far as
            they exist, and ``step(batch)``; or these parts themselves and ``step_fn``. Without a
            loader, ``step_fn`` gets the number of the step. A step returns its loss, or a
            :class:`~nabla_replay.ReplayObservation`, or nothing. Further the fields of
            :class:`~nabla_replay.replaying.options.ReplayOptions`: ``from_step``, ``to_step``,
            ``localize``, ``reference``, ``rank``, ``progress``.

    Raises:
        UsageError: an argument is unknown, of the wrong kind or out of range.
        RecordError: nothing of what was asked for was recorded, or it does not fit the program.
        CheckpointError: the checkpoint to start from is damaged.
        RunFormatError: there is no run that this version reads.
    """
    options = replay_options(arguments)
    given = program_arguments(arguments)
    with RunReader.open(run) as reader:
        return Course(Stage(reader, options, given)).run()
