"""What of a training program is fingerprinted: names, and where each tensor is found each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from .layout import Extent
from .views import byte_count, is_plain

__all__ = ["Component", "Entry", "entries_of", "extent_of", "tensors_of"]

Component = Literal["parameter", "buffer", "gradient", "extra"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of the program.

    Attributes:
        component: what kind of state it is.
        name: dotted name in the model, or in the extra state.
        owner: the mapping that holds it now; assignments to a module show up there.
        key: its key there.
    """

    component: Component
    name: str
    owner: Mapping[str, Tensor | None]
    key: str

    @property
    def tensor(self) -> Tensor | None:
        """The tensor as it is now."""
        found = self.owner.get(self.key)
        if found is None or self.component != "gradient":
            return found
        return found.grad


def entries_of(model: Module, extra: Mapping[str, Module] | None = None) -> tuple[Entry, ...]:
    """List parameters, buffers and gradients of ``model`` and the tensors of further modules.

    Tied tensors are listed once, under their first name.
    """
    parameters = list(_held(model, "_parameters", "parameter"))
    gradients = [Entry("gradient", one.name, one.owner, one.key) for one in parameters]
    buffers = list(_held(model, "_buffers", "buffer"))
    known = {id(entry.tensor) for entry in (*parameters, *buffers)}
    others = [
        Entry("extra", f"{name}.{one.name}", one.owner, one.key)
        for name, module in (extra or {}).items()
        for attribute in ("_parameters", "_buffers")
        for one in _held(module, attribute, "extra")
        if id(one.tensor) not in known
    ]
    return (*parameters, *buffers, *gradients, *others)


def _held(model: Module, attribute: str, component: Component) -> Iterator[Entry]:
    seen: set[int] = set()
    for path, module in model.named_modules():
        owner: Mapping[str, Tensor | None] = getattr(module, attribute)
        for key, tensor in owner.items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield Entry(component, f"{path}.{key}" if path else key, owner, key)


def extent_of(entry: Entry) -> Extent:
    """Return how many bytes an entry has; a gradient is taken to have those of its parameter."""
    tensor = entry.owner.get(entry.key)
    if tensor is None or is_lazy(tensor) or not is_plain(tensor):
        return Extent(0, whole=True)
    return Extent(byte_count(tensor))


def tensors_of(entries: tuple[Entry, ...]) -> Iterator[Tensor]:
    """Return the tensors that exist now."""
    for entry in entries:
        tensor = entry.tensor
        if tensor is not None:
            yield tensor
