"""The pytest plugin: a fixture, a marker, an ini option and a report.

Loaded in every pytest run of an environment that has nabla, so it imports neither torch nor the
core before one of them is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from .pytest_checks import NablaCheck

__all__ = [
    "nabla_check",
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_call",
    "pytest_sessionfinish",
]

_MARKER = (
    "nabla_allow(*rules, reason): accept the issues of these nabla rules in this test; the reason "
    "is required"
)


@pytest.fixture
def nabla_check(pytestconfig: pytest.Config) -> NablaCheck:
    """Check operators: ``nabla_check(op, [x], reference=…)`` or ``nabla_check.fuzz(op, […])``."""
    from .pytest_checks import NablaCheck

    return NablaCheck(pytestconfig)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--nabla-report`` and ``nabla_fail_on``."""
    group = parser.getgroup("nabla", "checks of derivatives")
    group.addoption(
        "--nabla-report", metavar="FILE", help="write what nabla_check found to FILE as JSON"
    )
    text = "severity from which nabla_check fails a test"
    parser.addini("nabla_fail_on", text, default="low")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker and make sure that the report can be written before tests run."""
    config.addinivalue_line("markers", _MARKER)
    target = config.getoption("--nabla-report")
    if target:
        from pathlib import Path

        from nabla_core.errors import InputError
        from nabla_core.files import check_writable

        try:
            check_writable(Path(str(target)))
        except InputError as error:
            raise pytest.UsageError(f"--nabla-report={error}") from error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Accept the rules of ``nabla_allow`` markers while the test runs."""
    markers = list(item.iter_markers("nabla_allow"))
    if not markers:
        return (yield)
    from contextlib import ExitStack

    from nabla_core.allowance import allow
    from nabla_core.errors import UsageError

    with ExitStack() as stack:
        for marker in markers:
            reason = str(marker.kwargs.get("reason", ""))
            try:
                stack.enter_context(allow(*marker.args, reason=reason))
            except UsageError as error:
                pytest.fail(f"{item.nodeid}: marker nabla_allow: {error}", pytrace=False)
        return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report of ``--nabla-report``; with pytest-xdist, each worker's own is dropped."""
    target = session.config.getoption("--nabla-report")
    if not target or hasattr(session.config, "workerinput"):
        return
    from pathlib import Path

    from nabla_core.files import write_text
    from nabla_core.reporters.json import render
    from nabla_core.reporters.style import Style

    from .pytest_checks import session_of

    report = session_of(session.config).finish()
    write_text(Path(str(target)), render(report, Style()))
