"""``nabla precision``: audit the model that a function builds."""

from __future__ import annotations

import shlex

import click

from nabla_core.cli.options import ReportRequest, reporting

__all__ = ["precision"]


@click.command("precision")
@click.argument("target", metavar="TARGET")
@click.option(
    "--dtypes",
    default="float16,bfloat16,float32",
    show_default=True,
    help="Candidates in the order of preference, comma-separated.",
)
@click.option("--exclusions", is_flag=True, help="Print the exclusion list as Python, no report.")
@reporting
def precision(request: ReportRequest, target: str, dtypes: str, exclusions: bool) -> int:
    """Say which modules of a model may run in half precision, and why the others may not.

    TARGET is file.py:function or module:function. The function takes nothing and returns the model
    and its inputs, or these and a loss: (model, inputs) or (model, inputs, loss_fn), or a dict with
    these keys.

    Exits with 1 when there are issues at or above --fail-on; faults in the dtype that the model has
    now are of high severity, the others are medium.
    """
    from .targets import audit_target

    session = request.session(shlex.join(["nabla", "precision", target]))
    with session:
        report, sections = audit_target(target, dtypes.split(","), session)
    if exclusions:
        click.echo(report.exclusions(), nl=False)
        return request.exit_code(session.finish())
    return request.deliver(sections)
