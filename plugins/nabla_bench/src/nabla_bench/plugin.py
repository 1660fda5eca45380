"""Hook implementations of nabla-bench."""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.declarations import Command
from nabla_core.hookspecs import hookimpl


@hookimpl
def nabla_commands() -> Iterable[Command]:
    """Declare ``nabla bench``."""
    summary = "Measure nabla itself: planted bugs, and what watching costs."
    return [Command(name="bench", target="nabla_bench.cli:bench", summary=summary)]
