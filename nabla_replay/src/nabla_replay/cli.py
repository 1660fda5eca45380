"""Commands about stored runs, artifacts and checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nabla_core.cli.state import ShellState

from .bisect_cli import bisect
from .replay_cli import replay

if TYPE_CHECKING:
    from .inspecting.inspection import Inspection

__all__ = ["artifact", "bisect", "import_checkpoint", "inspect", "replay"]

_PATH = click.Path(path_type=Path)


@click.command("inspect")
@click.argument("path", type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def inspect(state: ShellState, path: Path, as_json: bool) -> int:
    """Say what PATH is, what it holds, and whether it is intact.

    PATH is the folder of a captured run, the folder of a failure artifact, or a file of tensors.
    Nothing in it is loaded or executed, and no link is followed.

    Exits with 1 when it is not intact, 2 when it cannot be looked at.
    """
    from .inspecting.path import inspect_path
    from .progress import ProgressBar

    with ProgressBar("inspect") as bar:
        found = inspect_path(path, bar)
    return _show(state, found, as_json)


@click.group("artifact")
def artifact() -> None:
    """Look at the evidence of a failure, or make a copy that can be handed on."""


@artifact.command("inspect")
@click.argument("path", type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def artifact_inspect(state: ShellState, path: Path, as_json: bool) -> int:
    """Compare every file of an artifact with its manifest; nothing in it is executed."""
    from .inspecting.artifact import inspect_artifact

    return _show(state, inspect_artifact(path), as_json)


@artifact.command("sanitize")
@click.argument("path", type=_PATH)
@click.argument("target", type=_PATH)
def artifact_sanitize(path: Path, target: Path) -> int:
    """Write a copy of an artifact to TARGET without tensors and source, redacted once more."""
    from nabla_core.artifacts.sanitizing import sanitize_artifact

    written, left_out = sanitize_artifact(path, target)
    click.echo(str(written))
    for name in left_out:
        click.echo(f"nabla: left out: {name}", err=True)
    return 0


@click.command("import-checkpoint")
@click.argument("source", metavar="FILE.pt", type=_PATH)
@click.argument("target", metavar="OUT", type=_PATH)
def import_checkpoint(source: Path, target: Path) -> int:
    """Write the state in FILE.pt, a file of torch.save, as a state file without pickle.

    The file is read with torch's restricted reader (weights_only), which needs torch 2.6 or later.
    """
    from .importing import import_checkpoint as take_over
    from .inspecting.inspection import size_text

    stored = take_over(source, target)
    click.echo(f"{target}  {size_text(stored.size_bytes)}  sha256 {stored.sha256}")
    return 0


def _show(state: ShellState, found: Inspection, as_json: bool) -> int:
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else found.format())
    return state.plugin_exit_code(0 if found.passed else 1)
