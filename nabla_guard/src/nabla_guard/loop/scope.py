"""Which models and optimizers of the process a loop watches."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from torch.nn import Module
from torch.optim import Optimizer

from nabla_core.errors import UsageError

from ..taps.optimizers import parameters_of

__all__ = ["Scope", "chosen_optimizers"]


def chosen_optimizers(
    given: Optimizer | Iterable[Optimizer] | None, call: str
) -> tuple[Optimizer, ...]:
    """Return the optimizers that a person gave, as a tuple.

    Args:
        given: one, several, or none.
        call: the function they were given to, for the message.

    Raises:
        UsageError: one of them is no optimizer.
    """
    if given is None:
        return ()
    if isinstance(given, Optimizer) or not isinstance(given, Iterable):
        chosen: tuple[object, ...] = (given,)
    else:
        chosen = tuple(given)
    for found in chosen:
        if not isinstance(found, Optimizer):
            raise UsageError(
                f"{call}(optimizer={type(found).__name__}): needs a torch.optim.Optimizer, or "
                "several"
            )
    return tuple(found for found in chosen if isinstance(found, Optimizer))


class Scope:
    """Everything in the process, or only what belongs to a given model and given optimizers.

    With a model alone, the optimizers that hold any of its parameters belong to it. With optimizers
    alone, every root module is looked at, because any of them may feed their steps.

    Args:
        model: watch calls of this module, of modules around it and of modules inside it.
        optimizers: judge steps of these only.
    """

    def __init__(self, model: Module | None = None, optimizers: Iterable[Optimizer] = ()) -> None:
        self._model = None if model is None else weakref.ref(model)
        self._optimizers = weakref.WeakSet(optimizers)
        self._chosen = bool(self._optimizers)
        self._answers: dict[int, tuple[weakref.ref[Module], bool]] = {}

    @property
    def chosen(self) -> tuple[Optimizer, ...]:
        """The given optimizers that are alive; empty when none were given."""
        return tuple(self._optimizers)

    def has_module(self, module: Module) -> bool:
        """Whether calls of ``module`` are watched."""
        if self._model is None:
            return True
        known = self._answers.get(id(module))
        if known is None or known[0]() is not module:
            known = self._answer(module)
        return known[1]

    def has_optimizer(self, optimizer: Optimizer) -> bool:
        """Whether steps of ``optimizer`` are judged."""
        if self._chosen:
            return optimizer in self._optimizers
        model = None if self._model is None else self._model()
        if model is None:
            return self._model is None
        mine = {id(parameter) for parameter in model.parameters()}
        return any(id(parameter) in mine for parameter in parameters_of(optimizer))

    def _answer(self, module: Module) -> tuple[weakref.ref[Module], bool]:
        key, answers = id(module), self._answers
        ref = weakref.ref(module, lambda _: answers.pop(key, None))
        known = answers[key] = (ref, self._related(module))
        return known

    def _related(self, module: Module) -> bool:
        model = None if self._model is None else self._model()
        if model is None:
            return False
        return (
            module is model
            or any(module is part for part in model.modules())
            or any(model is part for part in module.modules())
        )
