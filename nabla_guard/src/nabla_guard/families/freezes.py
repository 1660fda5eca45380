"""Attributes by which somebody meant to freeze parameters, and which torch never reads."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType

from torch.nn import Module

from ..facts import ParameterFacts
from ..loop.watch import Watch

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
    """Looks, when it is asked, at the attributes of all modules and parameters."""

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
