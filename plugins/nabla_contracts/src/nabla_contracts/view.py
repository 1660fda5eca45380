"""A step as a contract sees it; what was not measured is absent, and says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from nabla_core.errors import NablaError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["NEEDS", "InputAbsent", "Need", "NoFacts", "Range", "StepFacts", "StepView", "TooEarly"]

Need = Literal["loss", "gradients", "parameters", "updates", "activations"]
"""What a contract looks at; ``updates`` are known only after the step."""

NEEDS: tuple[Need, ...] = ("loss", "gradients", "parameters", "updates", "activations")


class InputAbsent(NablaError):
    """Something that a contract looks at was not measured: the contract is not evaluated."""


class TooEarly(InputAbsent):
    """A contract compares steps, and there is no earlier one yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Smallest and largest value of a module's outputs in one step; NaN when one of them is NaN."""

    low: float
    high: float

    @property
    def is_finite(self) -> bool:
        """Whether neither end is NaN or infinite."""
        return math.isfinite(self.low) and math.isfinite(self.high)


class StepFacts(Protocol):
    """Where a view gets its tensors from; each may raise :class:`InputAbsent`."""

    def gradients(self) -> Mapping[str, Tensor]:
        """Gradients that the optimizer is given, by the name of their parameter."""

    def parameters(self) -> Mapping[str, Tensor]:
        """Parameters of the optimizer, by name."""

    def updates(self) -> Mapping[str, Tensor]:
        """What the step added to each parameter, by name."""

    def activations(self) -> Mapping[str, Range]:
        """Ranges of the outputs of the leaf modules, by path."""


class NoFacts:
    """Facts of a source that has numbers only, such as a log."""

    def gradients(self) -> Mapping[str, Tensor]:
        """See :class:`StepFacts`."""
        raise InputAbsent("this source has no gradients")

    def parameters(self) -> Mapping[str, Tensor]:
        """See :class:`StepFacts`."""
        raise InputAbsent("this source has no parameters")

    def updates(self) -> Mapping[str, Tensor]:
        """See :class:`StepFacts`."""
        raise InputAbsent("this source has no parameters")

    def activations(self) -> Mapping[str, Range]:
        """See :class:`StepFacts`."""
        raise InputAbsent("this source has no ranges of layers")


class StepView:
    """One optimizer step. Valid while the contract is judged: keep numbers, no tensors.

    Reading something that was not measured raises :class:`InputAbsent`; let it pass, and the
    contract counts as not evaluated for this step.

    Args:
        step: 0-based optimizer step.
        signals: scalar facts of the step.
        facts: where tensors come from.
    """

    __slots__ = ("_facts", "signals", "step")

    def __init__(self, step: int, signals: Mapping[str, float], facts: StepFacts) -> None:
        self.step = step
        self.signals = signals
        self._facts = facts

    @property
    def loss(self) -> float:
        """The loss that backward was called on, before loss scaling; the mean of several."""
        return self._signal("loss", "no scalar loss was seen in this step")

    @property
    def lr(self) -> float:
        """Learning rate of the first parameter group."""
        return self._signal("lr", "the learning rate is not known on the host")

    @property
    def grad_norm(self) -> float:
        """L2 norm of all gradients that the optimizer is given."""
        return self._signal("grad_norm", "no gradient was seen in this step")

    @property
    def gradients(self) -> Mapping[str, Tensor]:
        """Gradients by the name of their parameter; do not change them."""
        return self._facts.gradients()

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """Parameters of the optimizer by name; do not change them."""
        return self._facts.parameters()

    @property
    def updates(self) -> Mapping[str, Tensor]:
        """What the step added to each parameter; only for contracts that need ``updates``."""
        return self._facts.updates()

    @property
    def activations(self) -> Mapping[str, Range]:
        """Ranges of the outputs of the leaf modules that ran in this step, by path."""
        return self._facts.activations()

    def require(self, needs: frozenset[Need]) -> None:
        """Look whether everything in ``needs`` is there.

        Raises:
            InputAbsent: something is not.
        """
        for need in NEEDS:
            if need in needs:
                getattr(self, need)

    def _signal(self, name: str, reason: str) -> float:
        value = self.signals.get(name)
        if value is None:
            raise InputAbsent(reason)
        return value
