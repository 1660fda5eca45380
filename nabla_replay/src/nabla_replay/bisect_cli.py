"""``nabla bisect``: the first step at which a recorded run is bad."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

import click

from nabla_core.cli.options import ReportRequest, reporting
from nabla_core.errors import UsageError

from .replay_cli import EXIT_NOTHING_CHECKED, deliver

if TYPE_CHECKING:
    from .bisecting.predicates import StatePredicate
    from .bisecting.result import BisectResult

__all__ = ["bisect"]

_MAX_EPISODES = 20
_BUILD = "Function that returns the program, to replay between two checkpoints."
_PREDICATE = "Function that gets the state and returns whether it is bad."


class _Limits(TypedDict):
    greater_than: float | None
    less_than: float | None
    nonfinite: bool


@click.command("bisect")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--metric", metavar="NAME", help="A recorded number; by default loss.")
@click.option("--greater-than", type=float, metavar="X", help="Bad is a metric above X, or NaN.")
@click.option("--less-than", type=float, metavar="X", help="Bad is a metric below X, or NaN.")
@click.option("--nonfinite", is_flag=True, help="Bad is a metric that is NaN or infinite.")
@click.option("--predicate", metavar="TARGET", help=_PREDICATE)
@click.option("--build", metavar="TARGET", help=_BUILD)
@reporting
def bisect(
    request: ReportRequest,
    run: Path,
    metric: str | None,
    predicate: str | None,
    build: str | None,
    **limits: Unpack[_Limits],
) -> int:
    """Find the first step at which RUN is bad.

    With --metric, all bad episodes are found by one scan of the log. With --predicate, the state is
    asked at every checkpoint, and with --build also between two of them. A TARGET is
    file.py:function or module:function, and never comes from the run.

    Exits with 1 when there are issues at or above --fail-on, 2 when the run cannot be read, and 4
    when good and bad could not be told apart. Use --fail-on medium to exit with 1 when a bad step
    was found.
    """
    limited = any(one not in (None, False) for one in limits.values())
    if metric is None and predicate is None and limited:
        metric = "loss"
    if (metric is None) == (predicate is None):
        raise UsageError(
            "nabla bisect: say what is bad: --metric loss --greater-than 10, or --predicate TARGET"
        )
    from .program_failure import of_program
    from .rules import RULES

    with of_program(f"bisect {predicate or metric}"):
        result = _search(run, metric, (predicate, build), limits)
    asked = ["--predicate", predicate] if predicate else ["--metric", str(metric)]
    words = ["bisect", str(run), *asked, *_words(limits)]
    rules = [rule for rule in RULES if rule.id.startswith("REP30")]
    code = deliver(request, words, (rules, result.issues), ("Bisect", tuple(_told(result))))
    return code if code or result.is_conclusive else EXIT_NOTHING_CHECKED


def _search(
    run: Path, metric: str | None, targets: tuple[str | None, str | None], limits: _Limits
) -> BisectResult:
    from .bisecting.entry import bisect as search
    from .building import load_factory
    from .progress import ProgressBar
    from .store.reader import RunReader

    predicate, build = targets
    with RunReader.open(run):
        pass  # a wrong run is told before the program is imported
    with ProgressBar("bisect") as bar:
        if predicate is None:
            return search(run, metric=metric, progress=bar, **limits)
        asked = cast("StatePredicate", load_factory(predicate, run))
        program = None if build is None else load_factory(build, run)
        return search(run, asked, build=program, progress=bar)


def _words(limits: _Limits) -> list[str]:
    """Return the limits as they were written."""
    found = ["--nonfinite"] if limits["nonfinite"] else []
    for name, limit in (
        ("--greater-than", limits["greater_than"]),
        ("--less-than", limits["less_than"]),
    ):
        found += [] if limit is None else [name, f"{limit:g}"]
    return found


def _told(result: BisectResult) -> list[str]:
    """Return the outcome in a few lines."""
    lines = [f"bad is: {result.predicate}"]
    for episode in result.episodes[:_MAX_EPISODES]:
        lines.append(f"bad from step {episode.first} to {episode.last}")
    if len(result.episodes) > _MAX_EPISODES:
        lines.append(f"and {len(result.episodes) - _MAX_EPISODES} more episodes")
    if result.passed:
        lines.append("no bad step was found")
    lines += [f"{one.name}: {one.before} -> {one.after}" for one in result.changes]
    return lines
