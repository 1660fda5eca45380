"""Entry point of ``nabla`` and ``python -m nabla``."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code (see the table in ``docs/architecture.md``)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):  # the usual question, answered without importing click
        from .. import __version__

        print(f"nabla {__version__}")
        sys.exit(0)
    if sys.stdout is None or sys.stderr is None:  # closed by who started it
        _open_nothing()
    try:
        from .shell import run_shell
    except KeyboardInterrupt:  # before there is anybody else to say so
        print("nabla: interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(run_shell(words))


def _open_nothing() -> None:
    """Give a stream that was closed (``>&-``) a place to which everything may be written."""
    sys.stdout = io.StringIO() if sys.stdout is None else sys.stdout
    sys.stderr = io.StringIO() if sys.stderr is None else sys.stderr
