"""``nabla fuzz``: a fuzzing campaign from the command line."""

from __future__ import annotations

import shlex
from typing import TypedDict, Unpack

import click

from nabla_core.cli.options import ReportRequest, reporting

from .inputs.layout_names import LAYOUTS

__all__ = ["fuzz"]

_REFERENCE = "Trusted implementation with the same arguments: module:function or file.py:function."


class _Flags(TypedDict):
    recipes: tuple[str, ...]
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    trials: int
    seed: int
    jobs: int
    budget_s: float | None
    artifact_dir: str | None


@click.command("fuzz")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("--reference", metavar="TARGET", help=_REFERENCE)
@click.option(
    "--recipe",
    "recipes",
    multiple=True,
    required=True,
    metavar='"m k"',
    help="Axes of one input, equal names have equal sizes; repeat for more inputs.",
)
@click.option("--dtype", "dtypes", multiple=True, default=("float64",), show_default=True)
@click.option("--layout", "layouts", multiple=True, type=click.Choice([*LAYOUTS, "broadcasted"]))
@click.option("--trials", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--budget-s", type=float, help="Seconds after which no further trial starts.")
@click.option("--artifact-dir", type=click.Path(file_okay=False), help="Folder for evidence.")
@reporting
def fuzz(
    request: ReportRequest,
    targets: tuple[str, ...],
    reference: str | None,
    **flags: Unpack[_Flags],
) -> int:
    """Search shapes, dtypes, layouts and values for a case in which TARGET is wrong.

    The smallest failing case is explained; --recipe "m k" --recipe "k n" shares the size k.
    """
    from .project.fuzz_targets import FuzzRequest, fuzz_target

    wanted = FuzzRequest(
        reference=reference,
        recipes=flags["recipes"],
        dtypes=flags["dtypes"],
        layouts=flags["layouts"] or LAYOUTS,
        trials=flags["trials"],
        seed=flags["seed"],
        jobs=flags["jobs"],
        budget_s=flags["budget_s"],
        artifact_dir=flags["artifact_dir"],
    )
    verbose = request.state.verbose
    session = request.session(shlex.join(["nabla", "fuzz", *targets]), seed=flags["seed"])
    with session:
        for target in targets:
            result = fuzz_target(target, wanted, show_progress=False if verbose < 0 else None)
            if verbose > 0:
                click.echo(result.format(), err=True)
    return request.deliver(session.finish())
