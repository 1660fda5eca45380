"""``nabla.audit.assert_trains``: audit a training step in a unit test."""

from __future__ import annotations

from collections.abc import Callable

from nabla_core.errors import UsageError
from nabla_core.issue import Issue
from nabla_core.severity import Severity
from nabla_guard import guard

__all__ = ["AuditFailed", "assert_trains"]

MIN_STEPS = 3


class AuditFailed(AssertionError):
    """The audited steps train wrongly.

    Attributes:
        issues: what was found.
    """

    def __init__(self, issues: tuple[Issue, ...], steps: int) -> None:
        self.issues = issues
        lines = [f"{issue.rule} {issue.name}: {issue.message}" for issue in issues]
        first = f"{len(issues)} issues in {steps} training steps"
        if not issues:
            first = "no optimizer made a step, so nothing was trained"
        super().__init__("\n".join([first, *lines]))


def assert_trains(build: Callable[[], Callable[[], object]], steps: int = MIN_STEPS) -> None:
    """Run a few training steps and raise if they train wrongly.

    Args:
        build: makes model, data and optimizer, and returns a function that does one training step:
            forward, backward, and the step of the optimizer. Both run under the audit.
        steps: how often that function is called; patterns need three steps to be certain.

    Raises:
        AuditFailed: an AUD rule of at least medium severity is broken, or no optimizer stepped.
        UsageError: fewer than three steps, or ``build`` does not return a function.

    Example::

        def test_my_model_trains():
            nabla.audit.assert_trains(build_training_step)
    """
    if steps < MIN_STEPS:
        raise UsageError(
            f"assert_trains(steps={steps}): needs at least {MIN_STEPS}, because one odd step is no "
            "pattern"
        )
    with guard(mode="light") as monitor:
        train = build()
        if not callable(train):
            raise UsageError(
                f"assert_trains(build): build returned {type(train).__name__}; it must return a "
                "function that does one training step"
            )
        for _ in range(steps):
            train()
    issues = tuple(
        issue
        for issue in monitor.report().issues
        if issue.rule.startswith("AUD") and issue.severity >= Severity.MEDIUM
    )
    if issues:
        raise AuditFailed(issues, steps)
    if not monitor.steps:
        raise AuditFailed((), 0)
