"""Attributes by which somebody meant to freeze parameters, and which torch never reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module

from ..facts import ParameterFacts
from ..loop.exact import sample_of
from ..loop.watch import Watch

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.gradients import GradientRecord
    from ..loop.live import LiveLoop

__all__ = ["Freeze", "FreezeWatch"]

_MEANT = "requires_grad"
_ALIKE = 0.85


@dataclass(frozen=True, slots=True)
class Freeze:
    """An attribute set to False that freezes nothing.

    Attributes:
        name: dotted path of the module or parameter that has it, from its root module on.
        attribute: its name.
        parameters: facts of the parameters that it was meant for.
    """

    name: str
    attribute: str
    parameters: tuple[ParameterFacts, ...]


class FreezeWatch(Watch):
    """Looks, when it is asked, at the attributes of all modules and parameters, and at what steps
    do to parameters that were frozen after they had been trained.

    Attributes:
        thawed: steps that moved each parameter although it takes no gradients any more.
    """

    patient = frozenset({"step_started", "step_ended"})

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.thawed: dict[int, tuple[ParameterFacts, int]] = {}
        self._before: list[tuple[GradientRecord, Tensor]] = []

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Keep a sample of the parameters that were frozen after their first gradients."""
        self._before = [
            (found, sample_of(parameter))
            for found in record.records
            if found.facts.writes
            and (parameter := found.ref()) is not None
            and not parameter.requires_grad
            and _is_left(found, parameter.grad)
        ]

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Compare."""
        for found, before in self._before:
            parameter = found.ref()
            if parameter is not None and not torch.equal(before, sample_of(parameter)):
                count = self.thawed.get(id(found), (found.facts, 0))[1]
                self.thawed[id(found)] = found.facts, count + 1
        self._before = []

    def without_effect(self) -> Iterator[Freeze]:
        """Yield what was meant to be frozen: ``module.requires_grad = False`` and misspellings.

        A module whose own class deals with the name is left out: there it may be an option.
        """
        for root in self.loop.roots.living:
            for path, module in root.named_modules():
                name = ".".join(filter(None, [type(root).__name__, path]))
                for attribute in _denied(vars(module)):
                    if not _is_used(type(module), attribute):
                        yield Freeze(name, attribute, self._facts(module))
                for own, parameter in module._parameters.items():
                    for attribute in _denied(getattr(parameter, "__dict__", {})):
                        facts = self.loop.gradients.record(parameter).facts
                        yield Freeze(f"{name}.{own}", attribute, (facts,))

    def _facts(self, module: Module) -> tuple[ParameterFacts, ...]:
        return tuple(self.loop.gradients.record(found).facts for found in module.parameters())


def _is_left(found: GradientRecord, grad: Tensor | None) -> bool:
    """Whether a gradient is what a step or a clear has left behind: nobody has put it there."""
    if grad is None or grad.is_sparse:
        return False
    same = found.grad is not None and found.grad() is grad and found.used == grad._version
    return same or not bool(grad.any())


def _denied(attributes: dict[str, object]) -> Iterator[str]:
    """The attributes that are False and named like ``requires_grad``.

    The real one of a parameter is torch's own and never among them.
    """
    for name, value in attributes.items():
        if value is False and _is_alike(name):
            yield name


def _is_alike(name: str) -> bool:
    return name == _MEANT or (
        "grad" in name and difflib.SequenceMatcher(None, name, _MEANT).ratio() >= _ALIKE
    )


def _is_used(owner: type, attribute: str) -> bool:
    """Whether a class reads or sets the attribute itself, in the methods it adds to a module."""
    classes = [found for found in owner.__mro__ if found not in Module.__mro__]
    return any(
        isinstance(value, FunctionType) and attribute in value.__code__.co_names
        for found in classes
        for value in vars(found).values()
    )
