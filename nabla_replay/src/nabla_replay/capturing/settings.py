"""How the modules of a program are set: which are in eval mode, and the rates that it changes.

Neither is part of a state dict, and both decide what a step computes. They are observed where a
replay may begin: at the first call of the model after a checkpoint or the start of an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import torch
from torch.nn import Module

from nabla_core.artifacts.strict_json import JsonValue

from ..codec.inline import pack, unpack
from .calls import CallHook
from .parts import Parts

__all__ = ["ModuleSettings", "put_settings"]

_PLAIN = frozenset((bool, int, float, str, type(None)))
_Place = tuple[str, str]


class ModuleSettings:
    """Observes modules at their first call in a step.

    What a program is built with is no news, and is not noted: a replayed program that is built
    otherwise is another program. Once something has changed, it is noted at every observation.

    Args:
        parts: the program.
        resumed: whether a program goes on that may have been changed in an earlier process.
    """

    def __init__(self, parts: Parts, *, resumed: bool = False) -> None:
        self._paths = dict(parts.model.named_modules())
        self._first = {place: self._value(place) for place in self._places()}
        self._changed: dict[_Place, object] = {}
        self._modes: list[str] | None = None
        self._says_modes = resumed
        self._seen: list[str] | None = None
        self._calls = CallHook(parts, self._called)

    def wait(self) -> None:
        """Observe the next call of the model, or of a part of it, that computes gradients."""
        self._calls.turn_on()

    def let_go(self) -> None:
        """Let go of torch."""
        self._calls.turn_off()

    def settle(self) -> JsonValue:
        """A step was taken: return what has to be noted before its record; ``None`` for nothing.

        Modes count if they are after the step what they were in its first call: a program may
        evaluate before it records a step.
        """
        self.let_go()
        seen, self._seen = self._seen, None
        if seen is None:
            return None
        body: dict[str, object] = {}
        if seen == self._evaluating():
            self._says_modes |= self._modes is not None and seen != self._modes
            self._modes = seen
            if self._says_modes:
                body["eval"] = seen
        if self._changed:
            body["set"] = [[*place, value] for place, value in self._changed.items()]
        return pack(body) if body else None

    # ------------------------------------------------------------------ private
    def _called(self, module: Module) -> None:
        if not torch.is_grad_enabled():
            return
        self.let_go()
        self._seen = self._evaluating()
        for place, first in self._first.items():
            value = self._value(place)
            if type(value) in _PLAIN and (place in self._changed or value != first):
                self._changed[place] = value

    def _evaluating(self) -> list[str]:
        return [path for path, module in self._paths.items() if not module.training]

    def _value(self, place: _Place) -> object:
        return getattr(self._paths[place[0]], place[1], None)

    def _places(self) -> Iterator[_Place]:
        """Rates and the like: floats of any module, and what torch's own modules are made with.

        Other numbers of a person's module may go with tensors that no checkpoint holds.
        """
        for path, module in self._paths.items():
            constants = _constants(module)
            for name, value in {**_of_kind(type(module)), **module.__dict__}.items():
                if type(value) is float or (name in constants and type(value) in _PLAIN):
                    yield path, name


def put_settings(model: Module, note: JsonValue) -> None:
    """Set the modules of a program as they were observed; what it lacks is left out."""
    body = unpack(note)
    if not isinstance(body, Mapping):
        return
    modules = dict(model.named_modules())
    modes = body.get("eval")
    if isinstance(modes, list):
        evaluating = frozenset(map(str, modes))
        for path, module in modules.items():
            module.training = path not in evaluating
    for entry in cast("list[object]", body.get("set", [])):
        match entry:
            case [str(path), str(name), value]:
                module = modules.get(path)
                known = getattr(module, name, None)
                if module is not None and _is_setting(module, name, known):
                    setattr(module, name, value)
            case _:
                continue


def _is_setting(module: Module, name: str, known: object) -> bool:
    """Whether a note may change this: nothing else of a program is for a file to say."""
    return type(known) is float or (name in _constants(module) and type(known) in _PLAIN)


def _of_kind(kind: type) -> dict[str, object]:
    """Return what all modules of a kind have in common, as far as a person wrote it."""
    return {
        name: value
        for part in reversed(kind.__mro__)
        if issubclass(part, Module) and not part.__module__.startswith("torch.")
        for name, value in vars(part).items()
    }


def _constants(module: Module) -> frozenset[str]:
    if not type(module).__module__.startswith("torch."):
        return frozenset()
    return frozenset(getattr(type(module), "__constants__", ()))
