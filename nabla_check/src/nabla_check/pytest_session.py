"""What one pytest run collects, accepts and writes; imported once one of these is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nabla_core.allowance import allow
from nabla_core.errors import InputError, UsageError
from nabla_core.files import check_writable, write_text
from nabla_core.reporters.json import render
from nabla_core.reporters.style import Style
from nabla_core.session import Session, SessionOptions

__all__ = ["allowed_by_markers", "require_writable_report", "session_of", "write_report"]

_COLLECTED = pytest.StashKey[Session]()


def session_of(config: pytest.Config) -> Session:
    """Return the one session of this pytest run, made when it is first needed."""
    if _COLLECTED not in config.stash:
        config.stash[_COLLECTED] = Session(options=SessionOptions(command="pytest"))
    return config.stash[_COLLECTED]


@contextmanager
def allowed_by_markers(item: pytest.Item) -> Iterator[None]:
    """Accept the rules of the ``nabla_allow`` markers of ``item``; a bad marker fails the test."""
    with ExitStack() as stack:
        for marker in item.iter_markers("nabla_allow"):
            reason = str(marker.kwargs.get("reason", ""))
            try:
                stack.enter_context(allow(*marker.args, reason=reason))
            except UsageError as error:
                pytest.fail(f"{item.nodeid}: marker nabla_allow: {error}", pytrace=False)
        yield


def require_writable_report(config: pytest.Config) -> None:
    """Look before the tests run whether ``--nabla-report`` can be written.

    Raises:
        UsageError: it cannot.
    """
    try:
        check_writable(Path(str(config.getoption("--nabla-report"))))
    except InputError as error:
        raise pytest.UsageError(f"--nabla-report={error}") from error


def write_report(config: pytest.Config) -> None:
    """Write ``--nabla-report``; with pytest-xdist, each worker's own is dropped."""
    if hasattr(config, "workerinput"):
        return
    target = Path(str(config.getoption("--nabla-report")))
    write_text(target, render(session_of(config).finish(), Style()))
