"""``nabla trace``: a training script, its gradients explained."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from nabla_core.cli.options import ReportRequest, reporting
from nabla_core.report import Section

if TYPE_CHECKING:
    from .live.attachment import Attachment, AttachOptions, Part

__all__ = ["trace"]

_PARTS: tuple[Part, ...] = ("samples", "step", "noise", "signal")


@click.command("trace", context_settings={"allow_interspersed_args": False})
@click.option(
    "--every", type=click.IntRange(min=1), default=50, help="Look at one step in so many; 50."
)
@click.option(
    "--what",
    type=click.Choice(_PARTS),
    multiple=True,
    help="Parts, repeatable; by default all.",
)
@click.argument("script")
@click.argument("arguments", metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED)
@reporting
def trace(
    request: ReportRequest,
    script: str,
    arguments: tuple[str, ...],
    every: int,
    what: tuple[Part, ...],
) -> int:
    """Run SCRIPT with ARGS and explain the gradients of its first training loop.

    Options of nabla come before SCRIPT. The report has the alpha of the steps, the noise scale, the
    signal ladder and the verdicts (GEO rules). Exits with the script's own status when that is not
    zero, else with 1 when there are issues at or above --fail-on, 4 when no loop was found, 0
    otherwise.
    """
    from .script import trace_script

    options: AttachOptions = {"every": every, "what": what or _PARTS}
    session = request.session(shlex.join(["nabla", "trace", script, *arguments]))
    with session:
        attachment, status = trace_script(script, arguments, options)
    report = session.finish()
    code = request.deliver(replace(report, sections=(*report.sections, *_sections(attachment))))
    return status or code


def _sections(attachment: Attachment | None) -> tuple[Section, ...]:
    if attachment is None:
        reason = "no optimizer step of a model was seen: this is no clean result"
        return (Section(title="Why there is no verdict", lines=(reason,)),)
    return attachment.sections()
