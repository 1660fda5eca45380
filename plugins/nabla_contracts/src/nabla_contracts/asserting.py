"""``nabla.contracts.assert_step``: hold a training step to contracts in a unit test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from nabla_core.errors import CheckFailed, UsageError
from nabla_guard import guard

from .detectors import only_contracts
from .one_shot import CheckOutcome

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from .declaration import Contract

__all__ = ["assert_step"]


def assert_step(
    train_step: Callable[[], object],
    contracts: Iterable[Contract],
    *,
    model: Module | None = None,
    optimizer: Optimizer | None = None,
    steps: int = 1,
) -> CheckOutcome:
    """Run training steps and fail where a contract does not hold.

    Args:
        train_step: does forward, backward and the step of the optimizer.
        contracts: what must hold.
        model: look at this model only; by default at every one that is called.
        optimizer: judge the steps of this optimizer only.
        steps: how often ``train_step`` is called.

    Returns:
        Contracts that were not evaluated, if any.

    Raises:
        CheckFailed: a contract is broken, or no optimizer made a step. It is an AssertionError.
        UsageError: an argument is wrong.

    Example::

        def test_gradients_stay_small():
            nabla.contracts.assert_step(train_step, [nabla.contracts.gradient.norm(max=10.0)])
    """
    if not callable(train_step):
        raise UsageError(
            f"assert_step({type(train_step).__name__}): needs a function that does one step"
        )
    if steps < 1:
        raise UsageError(f"assert_step(steps={steps}): needs at least 1 step")
    held = only_contracts(contracts)
    with guard(model, optimizer=optimizer, contracts=held, shadow="off") as monitor:
        for _ in range(steps):
            train_step()
    issues = tuple(i for i in monitor.report().issues if i.rule.startswith("CON"))
    if not monitor.steps:
        raise CheckFailed("no optimizer made a step, so no contract was judged")
    outcome = CheckOutcome(issues=tuple(sorted(issues, key=lambda issue: -issue.severity)))
    outcome.raise_if_failed()
    return outcome
