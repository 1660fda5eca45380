"""``nabla check``: the operator check from the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

import click

from nabla_core.cli.options import ReportRequest, reporting
from nabla_core.errors import UsageError

if TYPE_CHECKING:
    from nabla_core.session import Session

__all__ = ["check"]

_DTYPES = ("float64", "float32", "bfloat16", "float16", "complex128", "complex64")
_REFERENCE = "Trusted implementation with the same arguments: module:function or file.py:function."


class _Flags(TypedDict):
    shapes: tuple[str, ...]
    dtype: str
    seed: int | None
    level: Literal["first-order", "full"]
    artifact_dir: str | None


@click.command("check")
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--reference", metavar="TARGET", help=_REFERENCE)
@click.option("--shape", "shapes", multiple=True, metavar="4,3", help="One input; repeat for more.")
@click.option("--dtype", type=click.Choice(_DTYPES), default="float64", show_default=True)
@click.option("--seed", type=int, help="Repeats a check; drawn and reported by default.")
@click.option(
    "--level", type=click.Choice(["first-order", "full"]), default="full", show_default=True
)
@click.option("--artifact-dir", type=click.Path(file_okay=False), help="Folder for evidence.")
@reporting
def check(
    request: ReportRequest,
    targets: tuple[str, ...],
    reference: str | None,
    **flags: Unpack[_Flags],
) -> int:
    """Check the derivatives of one or more operators.

    TARGET is module:function or file.py:function. Inputs are drawn for each --shape; without any,
    the function or list called `inputs` beside the operator gives them. Without a TARGET, all
    operators listed under [tool.nabla.check.operators] are checked.
    """
    session = request.session(shlex.join(["nabla", "check", *targets]), seed=flags["seed"])
    with session:
        outcomes = _named(targets, reference, flags) if targets else _listed(session)
        for line in outcomes:
            if request.state.verbose > 0:
                click.echo(line, err=True)
    return request.deliver(session.finish())


def _named(targets: tuple[str, ...], reference: str | None, flags: _Flags) -> Iterator[str]:
    from .project.targets import TargetInputs, check_target, parse_shape

    recipe = TargetInputs(
        shapes=tuple(parse_shape(text) for text in flags["shapes"]),
        dtype=flags["dtype"],
        artifact_dir=flags["artifact_dir"],
    )
    for target in targets:
        result = check_target(target, reference, recipe, level=flags["level"], seed=flags["seed"])
        yield result.format()


def _listed(session: Session) -> Iterator[str]:
    from .project.manifest import CheckSettings, check_manifest, read_operators

    settings = session.options(CheckSettings)
    operators = read_operators(settings)
    if not operators:
        raise UsageError(
            "nabla check: no TARGET, and no operators under [tool.nabla.check.operators]; "
            "name one like kernels.py:my_op, or list them in pyproject.toml"
        )
    for outcome in check_manifest(operators, settings.seed):
        yield outcome.check.format()
        if outcome.fuzz is not None:
            yield outcome.fuzz.format()
