"""Commands as data: nothing is imported to list them."""

from __future__ import annotations

from nabla_core.declarations import Command, Reader, RunList

__all__ = ["COMMANDS", "READERS", "RUN_LISTS"]

COMMANDS = (
    Command(
        name="replay",
        target="nabla_replay.cli:replay",
        summary="Execute the recorded steps of a run again and compare them bit by bit.",
    ),
    Command(
        name="bisect",
        target="nabla_replay.cli:bisect",
        summary="Find the first step at which a recorded run is bad.",
    ),
    Command(
        name="inspect",
        target="nabla_replay.cli:inspect",
        summary="Say what a run, an artifact or a checkpoint holds, and whether it is intact.",
    ),
    Command(
        name="artifact",
        target="nabla_replay.cli:artifact",
        summary="Look at the evidence of a failure, or make a copy to hand on.",
    ),
    Command(
        name="import-checkpoint",
        target="nabla_replay.cli:import_checkpoint",
        summary="Take over a checkpoint of torch.save, without pickle from then on.",
    ),
)

RUN_LISTS = (
    RunList(
        name="captured",
        target="nabla_replay.store.run_table:list_runs",
        summary="Runs that nabla.capture recorded.",
    ),
)

READERS = (
    Reader(
        name="captured run",
        target="nabla_replay.reading.step_log:read_steps",
        summary="The steps of a run that nabla.capture recorded.",
        sniff="nabla_replay.reading.step_log:sniff",
    ),
)
