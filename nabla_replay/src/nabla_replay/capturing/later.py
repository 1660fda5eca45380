"""Checkpoints of a program that is in the middle of a step: taken when the next one begins.

When the optimizer has acted, the rest of the step is still to come: scheduler, scaler and averages
are a step behind the parameters. They are not any more when the model is called next; generators
and the place in the data may have gone on by then, and are those of the earlier moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch.nn import Module, Parameter
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

__all__ = ["LaterCheckpoint", "Moment"]

_Held = tuple[Mapping[str, Parameter | None], dict[str, Parameter | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What goes on first when a step is over."""

    generators: Mapping[str, object]
    loader: Mapping[str, object] | None


class LaterCheckpoint:
    """Takes one checkpoint when the model is called next.

    Args:
        model: any call of it or of a part of it counts.
        moment: returns generators and place in the data.
        take: takes the checkpoint with this label.
    """

    def __init__(
        self,
        model: Module,
        moment: Callable[[], Moment],
        take: Callable[[int, Moment | None], object],
    ) -> None:
        self._model = model
        self._moment = moment
        self._take = take
        self._waiting: tuple[int, Moment] | None = None
        self._parts: frozenset[int] = frozenset()
        self._held: list[_Held] = []
        self._handle: RemovableHandle | None = None

    def put_off(self, label: int) -> None:
        """Take the checkpoint with this label later, with the generators as they are now."""
        self._waiting = label, self._moment()
        modules = tuple(self._model.modules())
        self._parts = frozenset(map(id, modules))
        self._held = [(one._parameters, dict(one._parameters)) for one in modules]
        self._handle = register_module_forward_pre_hook(self._called)

    def now(self) -> None:
        """Take what is waiting."""
        waiting = self._waiting
        self.give_up()
        if waiting is not None:
            self._take(*waiting)

    def give_up(self) -> None:
        """Forget what is waiting: the program has gone on without calling its model."""
        self._waiting = None
        self._held = []
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _called(self, module: Module, args: tuple[object, ...]) -> None:
        if id(module) in self._parts and self._is_itself():
            self.now()

    def _is_itself(self) -> bool:
        """Whether the model holds its own parameters: ``functional_call`` puts others there."""
        return all(
            now.get(key) is tensor for now, known in self._held for key, tensor in known.items()
        )
