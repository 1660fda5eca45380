"""``nabla.contracts.check``: judge the present state once, without watching anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nabla_core.issue import Issue
from nabla_core.records import StepRecord
from nabla_core.result import ResultMixin
from nabla_core.session import Session, SessionOptions
from nabla_core.severity import Severity

from .detectors import contract_detectors
from .rules import CONTRACT_NOT_EVALUATED
from .view import InputAbsent, Range

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

    from .declaration import Contract

__all__ = ["CheckOutcome", "Snapshot", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome(ResultMixin):
    """What was broken, and what could not be judged.

    Attributes:
        issues: breaches, then contracts that were not evaluated (CON901).
        fail_on: severity from which an issue fails the check.
    """

    issues: tuple[Issue, ...]
    fail_on: Severity = Severity.LOW

    @property
    def not_evaluated(self) -> tuple[Issue, ...]:
        """Contracts that could not be judged."""
        return tuple(i for i in self.issues if i.rule == CONTRACT_NOT_EVALUATED.id)

    def format(self) -> str:
        """Return one line per contract that is broken or was not judged."""
        if not self.issues:
            return "all contracts hold"
        return "\n".join(f"{issue.rule} {issue.name}: {issue.message}" for issue in self.issues)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A model between backward and step, as :class:`.view.StepFacts`.

    Attributes:
        named: parameters by name.
    """

    named: Mapping[str, Tensor]

    def gradients(self) -> Mapping[str, Tensor]:
        """See :class:`.view.StepFacts`."""
        grads = {n: p.grad.detach() for n, p in self.named.items() if p.grad is not None}
        if not grads:
            raise InputAbsent("no parameter has a gradient; call check between backward and step")
        return grads

    def parameters(self) -> Mapping[str, Tensor]:
        """See :class:`.view.StepFacts`."""
        if not self.named:
            raise InputAbsent("neither a model nor an optimizer was given")
        return {name: parameter.detach() for name, parameter in self.named.items()}

    def updates(self) -> Mapping[str, Tensor]:
        """See :class:`.view.StepFacts`."""
        raise InputAbsent("a single look sees no change; use assert_step or guard")

    def activations(self) -> Mapping[str, Range]:
        """See :class:`.view.StepFacts`."""
        raise InputAbsent("a single look sees no outputs of modules; use assert_step or guard")


def check(
    model: Module | None = None,
    optimizer: Optimizer | None = None,
    *,
    contracts: Iterable[Contract],
    loss: Tensor | float | None = None,
    step: int = 0,
) -> CheckOutcome:
    """Judge the state between backward and step once; nothing is watched or changed.

    Args:
        model: its parameters and their gradients are looked at.
        optimizer: without a model, its parameters; with one, the learning rate only.
        contracts: what must hold.
        loss: the loss of the step, a scalar.
        step: number of the step, for the report.

    Returns:
        What is broken. A contract whose input was not given is not evaluated, which is no failure.

    Raises:
        UsageError: one of the contracts is no contract.

    Example::

        loss.backward()
        nabla.contracts.check(model, loss=loss, contracts=wanted).raise_if_failed()
    """
    named = _named(model, optimizer)
    record = StepRecord(step=step, time_s=0.0, signals=_signals(optimizer, loss))
    session = Session(options=SessionOptions(command="nabla.contracts.check", isolated=True))
    with session:
        for detector in contract_detectors(contracts, session):
            detector.look_at(Snapshot(named=named))
            for issue in (*detector.step(record), *detector.finish()):
                session.add(issue)
    issues = sorted(session.issues, key=lambda issue: -issue.severity)
    return CheckOutcome(issues=tuple(issues))


def _named(model: Module | None, optimizer: Optimizer | None) -> dict[str, Tensor]:
    if model is not None:
        return dict(model.named_parameters())
    groups = [] if optimizer is None else optimizer.param_groups
    held = [parameter for group in groups for parameter in group["params"]]
    return {f"parameter {index}": parameter for index, parameter in enumerate(held)}


def _signals(optimizer: Optimizer | None, loss: Tensor | float | None) -> dict[str, float]:
    signals: dict[str, float] = {}
    if loss is not None:
        signals["loss"] = float(getattr(loss, "detach", lambda: loss)())
    rate = optimizer.param_groups[0].get("lr") if optimizer is not None else None
    if rate is not None:
        signals["lr"] = float(rate)
    return signals
