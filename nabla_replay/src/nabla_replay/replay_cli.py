"""``nabla replay``: verify what is stored, or execute it again and compare."""

from __future__ import annotations

from dataclasses import replace as with_changes
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from nabla_core.cli.options import ReportRequest, reporting
from nabla_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nabla_core.issue import Issue
    from nabla_core.report import Section
    from nabla_core.rule import Rule

__all__ = ["EXIT_NOTHING_CHECKED", "deliver", "replay"]

EXIT_NOTHING_CHECKED = 4
_BUILD = (
    "Function that returns the program: an object with model, optimizer, ... and step(batch); "
    "file.py:function or module:function."
)


class _Flags(TypedDict):
    from_step: int | None
    to_step: int | None
    localize: bool
    rank: int


@click.command("replay")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--verify-only", is_flag=True, help="Only compare the checksums of what is stored.")
@click.option("--build", metavar="TARGET", help=_BUILD)
@click.option("--from", "from_step", type=click.IntRange(min=0), help="First step to compare.")
@click.option("--to", "to_step", type=click.IntRange(min=0), help="Last step to compare.")
@click.option("--localize", is_flag=True, help="Find the module in which a difference begins.")
@click.option(
    "--explain-step",
    type=click.IntRange(min=0),
    metavar="N",
    help="Execute step N in deep mode instead, and say where a bad number was born.",
)
@click.option("--rank", type=click.IntRange(min=0), default=0, help="Whose record; default 0.")
@reporting
def replay(
    request: ReportRequest,
    run: Path,
    verify_only: bool,
    build: str | None,
    explain_step: int | None,
    **flags: Unpack[_Flags],
) -> int:
    """Execute the recorded steps of RUN again and compare them bit by bit.

    RUN is the folder of a captured run. The program comes from --build, never from the run.

    Exits with 1 when a step differs or what is stored is damaged, 2 when it cannot be replayed, and
    4 when nothing differs but some steps could not be compared.
    """
    if verify_only:
        return _verify(request, run)
    from .program_failure import of_program
    from .store.reader import RunReader

    with RunReader.open(run):
        pass  # a wrong run is told before the program is imported
    if build is None:
        raise UsageError("nabla replay: say how to make the program: --build file.py:function")
    with of_program(f"replay --build {build}"):
        if explain_step is not None:
            return _explain(request, run, (build, explain_step, flags["rank"]))
        return _execute(request, run, build, flags)


def _execute(request: ReportRequest, run: Path, build: str, flags: _Flags) -> int:
    from .building import load_factory
    from .progress import ProgressBar
    from .replaying.entry import replay as execute
    from .rules import RULES

    with ProgressBar("replay") as bar:
        result = execute(run, build=load_factory(build, run), progress=bar, **flags)
    section = ("Replay", (result.headline(),))
    words = ["replay", str(run), "--build", build]
    rules = [rule for rule in RULES if rule.id.startswith(("REP10", "REP901"))]
    code = deliver(request, words, (rules, result.issues), section)
    return EXIT_NOTHING_CHECKED if code == 0 and not result.passed else code


def _explain(request: ReportRequest, run: Path, what: tuple[str, int, int]) -> int:
    from .building import load_factory
    from .replaying.explaining import explain_step

    build, step, rank = what
    return request.deliver(explain_step(run, step, build=load_factory(build, run), rank=rank))


def _verify(request: ReportRequest, run: Path) -> int:
    from .progress import ProgressBar
    from .rules import RULES
    from .store.verify import verify_run
    from .wording import amount

    with ProgressBar("verify") as bar:
        found = verify_run(run, bar)
    stored = f"{amount(found.steps, 'step')} and {amount(found.checkpoints, 'checkpoint')}"
    text = f"run {found.run_id}: {stored} intact"
    rules = [rule for rule in RULES if rule.id.startswith("REP20")]
    words = ["replay", str(run), "--verify-only"]
    return deliver(request, words, (rules, found.issues), ("Stored", (text,)))


def deliver(
    request: ReportRequest,
    words: list[str],
    verdicts: tuple[Iterable[Rule], Iterable[Issue]],
    told: tuple[str, tuple[str, ...]],
) -> int:
    """Hand issues to the reporters and return the exit code.

    Args:
        request: what the person wants to see.
        words: the command, without ``nabla``.
        verdicts: the rules that were judged, and the issues.
        told: title and lines of a section of its own.
    """
    import shlex

    from nabla_core.report import Section

    session = request.session(shlex.join(["nabla", *words]))
    with session:
        session.use(verdicts[0])
        for issue in verdicts[1]:
            session.add(issue)
    report = session.finish()
    section: Section = Section(title=told[0], lines=told[1])
    return request.deliver(with_changes(report, sections=(section, *report.sections)))
