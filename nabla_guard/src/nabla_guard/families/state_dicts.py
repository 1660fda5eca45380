"""One call of ``Module.load_state_dict``: what it used, and which ties it broke."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module

from ..facts import Place
from ..taps.place import user_place

__all__ = ["ModuleLoad", "NamesBefore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleLoad:
    """One call of ``Module.load_state_dict``.

    Attributes:
        module: class name.
        strict: whether names had to match.
        given: entries in the state dict.
        wanted: entries that the module has.
        applied: entries that were used.
        missing: entries of the module that the state dict lacks.
        renamed: missing names with the unused name that differs only by a prefix and has the same
            shape.
        moved: all missing names, each with the unused one of the same shape that begins otherwise,
            where one change of the first part explains them all.
        untied: pairs of names that were one tensor before the call and are two after it.
        conflicting: pairs of names that are one tensor of the module, with different values in the
            state dict.
        split: pairs of names that share memory in the state dict and are two parameters of the
            module.
        own: entries that are the module's own memory, if all of them are; loading is no copy then.
        kept_steps: of such a state dict: steps between ``state_dict()`` and this call in which its
            tensors were written; ``None`` when it was not seen to be taken.
        overwritten: whether the module was given another state dict since that one was taken.
        repeats: how often in a row the module was given its own untouched state, with steps of its
            optimizer in between.
        hidden: names in a file that nobody has used, which are the module's but for a prefix.
        place: where it was called.
    """

    module: str
    strict: bool
    given: int
    wanted: int
    applied: int
    missing: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    untied: tuple[tuple[str, str], ...] = ()
    conflicting: tuple[tuple[str, str], ...] = ()
    split: tuple[tuple[str, str], ...] = ()
    own: int = 0
    kept_steps: int | None = None
    overwritten: bool = False
    repeats: int = 0
    hidden: tuple[tuple[str, str], ...] = ()
    place: Place | None = None


class NamesBefore:
    """Names, shapes and shared tensors of a module before a state dict is loaded."""

    def __init__(self, module: Module) -> None:
        self.shapes = {
            name: tuple(value.shape)
            for found in (module.named_parameters, module.named_buffers)
            for name, value in found(remove_duplicate=False)
        }
        self.tied = list(_tied(module))

    def compare(self, module: Module, state: Mapping[str, object], strict: bool) -> ModuleLoad:
        """Describe a call that is over."""
        missing = tuple(name for name in self.shapes if name not in state)
        now = set(_tied(module))
        return ModuleLoad(
            module=type(module).__name__,
            strict=strict,
            given=len(state),
            wanted=len(self.shapes),
            applied=sum(name in state for name in self.shapes),
            missing=missing,
            renamed=tuple(self._renamed(missing, _shapes(state))),
            moved=self._moved(missing, _shapes(state)),
            untied=tuple(pair for pair in self.tied if pair not in now),
            conflicting=tuple(pair for pair in self.tied if _differ(state, pair)),
            split=tuple(self._split(module, state)),
            place=user_place(),
        )

    def hidden_in(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[tuple[str, str], ...]:
        """Pair all names with those of a file, if it has each of them but for a prefix."""
        pairs = tuple(self._renamed(tuple(self.shapes), shapes))
        return pairs if len(pairs) == len(self.shapes) else ()

    def _renamed(
        self, missing: tuple[str, ...], state: Mapping[str, tuple[int, ...] | None]
    ) -> Iterator[tuple[str, str]]:
        """Pair missing names with unused ones that have one prefix more or less."""
        unused = {name: None for name in state if name not in self.shapes}
        by_end: dict[str, str] = {}
        for name in unused:
            parts = name.split(".")
            for start in range(1, len(parts)):
                by_end.setdefault(".".join(parts[start:]), name)
        for name in missing:
            parts = name.split(".")
            shorter = (".".join(parts[start:]) for start in range(1, len(parts)))
            found = by_end.get(name) or next((end for end in shorter if end in unused), None)
            if found is not None and state[found] == self.shapes[name]:
                yield name, found

    def _moved(
        self, missing: tuple[str, ...], state: Mapping[str, tuple[int, ...] | None]
    ) -> tuple[tuple[str, str], ...]:
        """Pair all missing names with unused ones in which another first part stands."""
        wanted = {name.partition(".")[0] for name in missing}
        if len(wanted) != 1:
            return ()
        for first in dict.fromkeys(name.partition(".")[0] for name in state):
            pairs = tuple((name, ".".join([first, name.partition(".")[2]])) for name in missing)
            if all(
                found not in self.shapes and state.get(found) == self.shapes[name]
                for name, found in pairs
            ):
                return pairs
        return ()

    def _split(self, module: Module, state: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        homes: dict[tuple[int, tuple[int, ...]], str] = {}
        own = dict(module.named_parameters(remove_duplicate=False))
        for name, value in state.items():
            if name not in own or not isinstance(value, Tensor) or not value.numel():
                continue
            home = (value.data_ptr(), tuple(value.shape))
            first = homes.setdefault(home, name)
            if first != name and home[0] and own[first] is not own[name]:
                yield first, name


def _tied(module: Module) -> Iterator[tuple[str, str]]:
    names: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        first = names.setdefault(id(parameter), name)
        if first != name:
            yield first, name


def _differ(state: Mapping[str, object], pair: tuple[str, str]) -> bool:
    one, other = (state.get(name) for name in pair)
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one is other:
        return False
    return one.shape != other.shape or not torch.equal(one, other.to(one.device))


def _shapes(state: Mapping[str, object]) -> dict[str, tuple[int, ...] | None]:
    return {
        name: tuple(value.shape) if isinstance(value, Tensor) else None
        for name, value in state.items()
    }
