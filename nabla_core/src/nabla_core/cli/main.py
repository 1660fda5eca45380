"""Entry point of ``nabla`` and ``python -m nabla``."""

from __future__ import annotations

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
    from .shell import run_shell

    sys.exit(run_shell(words))
