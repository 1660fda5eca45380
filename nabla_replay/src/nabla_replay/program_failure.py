"""An exception of the program to replay, told as its own: without frames of the tools around it."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import click

from nabla_core.errors import NablaError

__all__ = ["ProgramFailed", "of_program"]

_EXIT_TARGET_CRASHED = 3
_FOREIGN = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")}
)


class ProgramFailed(click.ClickException):
    """The program, or a function that a person named, raised.

    Args:
        what: that was being done.
        error: what it raised.
    """

    exit_code = _EXIT_TARGET_CRASHED

    def __init__(self, what: str, error: Exception) -> None:
        super().__init__(f"{what}: the program raised {type(error).__name__}: {error}")
        self.error = error

    def show(self, file: object = None) -> None:
        """Print the traceback from the program's first line on, and one sentence."""
        lines = traceback.format_exception(
            type(self.error), self.error, _first_of_program(self.error.__traceback__), chain=False
        )
        click.echo("".join(lines).rstrip(), err=True)
        click.echo(f"nabla: {self.message}", err=True)


@contextmanager
def of_program(what: str) -> Iterator[None]:
    """Turn an exception that comes out of the person's own code into :class:`ProgramFailed`."""
    try:
        yield
    except (NablaError, click.ClickException):
        raise
    except Exception as error:
        if _first_of_program(error.__traceback__) is None:
            raise  # a fault of ours
        raise ProgramFailed(what, error) from error


def _first_of_program(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and not _is_of_program(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_of_program(file: str) -> bool:
    if file.startswith("<"):
        return False
    place = Path(file).resolve()
    return not str(place).startswith(_FOREIGN) and not _is_ours(place)


def _is_ours(place: Path) -> bool:
    """Whether a file belongs to a package of nabla, installed from a clone."""
    return any(
        folder.name.startswith("nabla_") and (folder / "py.typed").is_file()
        for folder in place.parents
    )
