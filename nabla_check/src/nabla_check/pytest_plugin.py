"""The pytest plugin: a fixture, a marker, an ini option and a report.

Loaded in every pytest run of an environment that has nabla, so all but the declarations is in files
that are imported when they are needed.
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

_MARKER = "nabla_allow(*rules, reason): accept these nabla rules in this test, for that reason"


@pytest.fixture
def nabla_check(pytestconfig: pytest.Config) -> NablaCheck:
    """Check operators: ``nabla_check(op, [x], reference=…)`` or ``nabla_check.fuzz(op, […])``."""
    from .pytest_checks import NablaCheck

    return NablaCheck(pytestconfig)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--nabla-report`` and ``nabla_fail_on``."""
    group = parser.getgroup("nabla", "checks of derivatives")
    group.addoption("--nabla-report", metavar="FILE", help="write what nabla_check found as JSON")
    parser.addini("nabla_fail_on", "severity from which nabla_check fails a test", default="low")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker and make sure that the report can be written before tests run."""
    config.addinivalue_line("markers", _MARKER)
    if config.getoption("--nabla-report"):
        from .pytest_session import require_writable_report

        require_writable_report(config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Accept the rules of ``nabla_allow`` markers while the test runs."""
    if item.get_closest_marker("nabla_allow") is None:
        return (yield)
    from .pytest_session import allowed_by_markers

    with allowed_by_markers(item):
        return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report of ``--nabla-report``."""
    if session.config.getoption("--nabla-report"):
        from .pytest_session import write_report

        write_report(session.config)
