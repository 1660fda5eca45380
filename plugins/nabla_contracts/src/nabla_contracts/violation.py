"""The exception that ends a run whose contract is broken."""

from __future__ import annotations

from nabla_core.errors import NablaError
from nabla_core.issue import Issue

__all__ = ["ContractViolation"]


class ContractViolation(NablaError, AssertionError):
    """A contract with ``raise_on_failure`` does not hold.

    What is known before the optimizer acts is raised before it acts: the parameters are as they
    were. The change of a parameter is known, and raised, after the step.

    Attributes:
        issue: the verdict.
    """

    def __init__(self, issue: Issue) -> None:
        self.issue = issue
        when = "" if issue.step is None else f" at step {issue.step}"
        super().__init__(f"{issue.rule} {issue.name}{when}: {issue.message}")
