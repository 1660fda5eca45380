"""Checkpoints of a program that is in the middle of a step: taken when the next one begins.

When the optimizer has acted, the rest of the step is still to come: scheduler, scaler and averages
are a step behind the parameters. They are not any more when the model is called next; generators
and the place in the data may have gone on by then, and are those of the earlier moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch.nn import Module, Parameter

from .calls import CallHook
from .parts import Parts

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
        parts: the program; any call of its model or of a part of it counts.
        moment: returns generators and place in the data.
        take: takes the checkpoint with this label.
    """

    def __init__(
        self,
        parts: Parts,
        moment: Callable[[], Moment],
        take: Callable[[int, Moment | None], object],
    ) -> None:
        self._model = parts.model
        self._moment = moment
        self._take = take
        self._waiting: tuple[int, Moment] | None = None
        self._held: list[_Held] = []
        self._calls = CallHook(parts, self._called)

    def put_off(self, label: int) -> None:
        """Take the checkpoint with this label later, with the generators as they are now."""
        self._waiting = label, self._moment()
        modules = tuple(self._model.modules())
        self._held = [(one._parameters, dict(one._parameters)) for one in modules]
        self._calls.turn_on()

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
        self._calls.turn_off()

    def _called(self, module: Module) -> None:
        if self._is_itself():
            self.now()

    def _is_itself(self) -> bool:
        """Whether the model holds its own parameters: ``functional_call`` puts others there."""
        return all(
            now.get(key) is tensor for now, known in self._held for key, tensor in known.items()
        )
