"""State dicts whose tensors are the module's own: loading them back restores nothing."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.nn import Module

__all__ = ["OwnState", "OwnStates", "address", "own_entries"]

_MAX_TAKEN = 64


@dataclass(frozen=True, slots=True)
class OwnState:
    """A state dict of nothing but the module's own tensors, before it is loaded.

    Attributes:
        entries: how many; 0 for any other state dict.
        step: step that was being prepared when it was taken; ``None`` when that was not seen.
        untouched: whether its tensors have not been written since then.
        overwritten: whether the module was given another state dict since then.
    """

    entries: int
    step: int | None = None
    untouched: bool = False
    overwritten: bool = False


@dataclass(frozen=True, slots=True)
class _Taken:
    """One call of ``state_dict()``.

    Attributes:
        first: one of the tensors that it returned, by which the dict is known again.
        step: step of the loop that was being prepared.
        versions: sum of the version counters of its tensors.
        serial: calls of ``state_dict`` and ``load_state_dict`` before it.
    """

    first: weakref.ref[Tensor]
    step: int
    versions: int
    serial: int


class OwnStates:
    """Remembers when state dicts were taken, by one of their tensors; holds none of them."""

    def __init__(self) -> None:
        self._taken: dict[int, _Taken] = {}
        self._serial = 0
        self._loaded: weakref.WeakKeyDictionary[Module, int] = weakref.WeakKeyDictionary()

    def note(self, state: Mapping[str, object], step: int) -> None:
        """Note that ``state_dict()`` returned ``state``."""
        first = next((value for value in state.values() if isinstance(value, Tensor)), None)
        if first is None:
            return
        if len(self._taken) >= _MAX_TAKEN:
            self._taken = {
                key: taken for key, taken in self._taken.items() if taken.first() is not None
            }
        if len(self._taken) >= _MAX_TAKEN:
            del self._taken[next(iter(self._taken))]
        self._taken[id(first)] = _Taken(weakref.ref(first), step, _versions(state), self._serial)

    def loaded(self, module: Module) -> None:
        """Note that ``module`` was given a state dict that is not its own."""
        self._serial += 1
        self._loaded[module] = self._serial

    def look(self, module: Module, state: Mapping[str, object]) -> OwnState:
        """Say whether ``state`` is ``module``'s own, and when it was taken."""
        entries = own_entries(module, state)
        for value in state.values() if entries else ():
            taken = self._taken.get(id(value))
            if taken is not None and taken.first() is value:
                untouched = _versions(state) == taken.versions
                overwritten = self._loaded.get(module, 0) > taken.serial
                return OwnState(entries, taken.step, untouched, overwritten)
        return OwnState(entries)


def own_entries(module: Module, state: Mapping[str, object]) -> int:
    """Count the entries of ``state`` that are the very memory of the module's tensor of that name.

    Returns:
        Their number if these are all tensors with elements that the module would take, else 0.
    """
    count = 0
    for found in (module.named_parameters, module.named_buffers):
        for name, own in found(remove_duplicate=False):
            given = state.get(name)
            if not isinstance(given, Tensor) or not given.numel():
                continue
            home = address(given)
            if given.shape != own.shape or not home or home != address(own):
                return 0
            count += 1
    return count


def address(tensor: Tensor) -> int:
    """Return where the values are; 0 for tensors that have no memory of their own."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


def _versions(state: Mapping[str, object]) -> int:
    return sum(
        value._version
        for value in state.values()
        if isinstance(value, Tensor) and not value.is_inference()
    )
