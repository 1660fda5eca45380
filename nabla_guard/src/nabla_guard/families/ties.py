"""Parameters that are one object under two names, or two objects over one memory."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn import Module
from torch.optim import Optimizer

from ..loop.watch import Watch

if TYPE_CHECKING:
    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["TieFacts", "TieWatch"]

TieKind = Literal["broken", "declared", "memory", "values"]
_FIRST_LOOK = 1
_EVERY = 96  # a calm loop is looked at in full then
_MIN_ELEMENTS = 16
_DECLARES = ("tie_word_embeddings", "tie_embeddings", "tie_weights", "weight_tying")


@dataclass(frozen=True, slots=True, kw_only=True)
class TieFacts:
    """Two parameters of a root module that should be one.

    Attributes:
        kind: ``broken`` when they were one object before; ``declared`` when the module's config
            says so; ``memory`` when they are two objects over one memory; ``values`` when an
            embedding and an output layer started bit-identical, as two objects.
        module: class name of the root module.
        first: dotted name of the first.
        second: dotted name of the second.
        shape: their shape.
    """

    kind: TieKind
    module: str
    first: str
    second: str
    shape: tuple[int, ...]


class TieWatch(Watch):
    """Looks at each root module at its first call, after the first steps, and now and then.

    Attributes:
        found: ties that do not hold, each told once.
    """

    patient = frozenset({"forward_ended", "step_ended"})

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.found: list[TieFacts] = []
        self._roots: dict[int, tuple[weakref.ref[Module], list[tuple[str, ...]]]] = {}
        self._told: set[tuple[str, str, str]] = set()

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """See :class:`.watch.Watch`."""
        known = self._roots.get(id(module))
        if known is not None and known[0]() is module:
            return
        if torch.is_grad_enabled():
            self._roots[id(module)] = (weakref.ref(module), _tied(module))
            self._add(_alike(module))

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`.watch.Watch`."""
        step = self.loop.index
        if step != _FIRST_LOOK and (step % _EVERY or not step):
            return
        for reference, groups in self._roots.values():
            module = reference()
            if module is not None:
                self._add(_broken(module, groups))
                self._add(_declared(module))
                self._add(_overlapping(module))

    def take(self) -> list[TieFacts]:
        """Return what was found since the last call."""
        found, self.found = self.found, []
        return found

    def _add(self, ties: list[TieFacts]) -> None:
        for tie in ties:
            key = (tie.module, tie.first, tie.second)
            if key not in self._told:
                self._told.add(key)
                self.found.append(tie)


def _tied(module: Module) -> list[tuple[str, ...]]:
    """Names of parameters that are the same object."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [tuple(same) for same in names.values() if len(same) > 1]


def _broken(module: Module, groups: list[tuple[str, ...]]) -> list[TieFacts]:
    now = dict(module.named_parameters(remove_duplicate=False))
    return [
        _tie("broken", module, group[0], name, now[name])
        for group in groups
        for name in group[1:]
        if group[0] in now and name in now and now[name] is not now[group[0]]
    ]


def _declared(module: Module) -> list[TieFacts]:
    """Language models say in their config that input and output embeddings are tied."""
    if not any(_says_tied(part) for part in (module, getattr(module, "module", None))):
        return []
    weights = _weights_of_ends(module)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    if len(weights) != 2 or weights[0] is weights[1]:
        return []
    first, second = weights
    if id(first) not in names or id(second) not in names:
        return []
    return [_tie("declared", module, names[id(first)], names[id(second)], first)]


def _says_tied(module: object) -> bool:
    config = getattr(module, "config", None)
    given = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
    return any(
        given.get(name, getattr(config, name, None)) is True
        or getattr(module, "__dict__", {}).get(name) is True
        for name in _DECLARES
    )


def _weights_of_ends(module: Module) -> list[Tensor]:
    """Weights of the input and the output embedding: as the module tells, or the only pair of an
    embedding and an output layer with equal shapes."""
    ends = [getattr(module, f"get_{side}_embeddings", None) for side in ("input", "output")]
    if all(map(callable, ends)):
        layers = [end() for end in ends if end is not None]
        found = [getattr(layer, "weight", None) for layer in layers]
        return [weight for weight in found if isinstance(weight, Tensor)]
    parts = [part for part in module.modules() if _is_end(part)]
    tables = [_weight(part) for part in parts if isinstance(part, nn.Embedding)]
    outputs = [_weight(part) for part in parts if isinstance(part, nn.Linear)]
    pairs = [
        [table, output]
        for table in tables
        for output in outputs
        if table is not None and output is not None and table.shape == output.shape
    ]
    return pairs[0] if len(pairs) == 1 else []


def _overlapping(module: Module) -> list[TieFacts]:
    """Different parameters of one shape that start at the same address."""
    places: dict[tuple[object, ...], tuple[str, Tensor]] = {}
    found = []
    for name, parameter in module.named_parameters():
        strided = parameter.layout is torch.strided and not parameter.is_meta
        if not strided or not parameter.requires_grad or parameter.numel() < _MIN_ELEMENTS:
            continue
        key = (parameter.device, parameter.data_ptr(), tuple(parameter.shape))
        other = places.setdefault(key, (name, parameter))
        if other[1] is not parameter and parameter.data_ptr():
            found.append(_tie("memory", module, other[0], name, parameter))
    return found


def _alike(module: Module) -> list[TieFacts]:
    """Embeddings and output layers that start equal without being one."""
    layers = [found for found in module.named_modules() if _is_end(found[1])]
    tables = [entry for entry in layers if isinstance(entry[1], nn.Embedding)]
    outputs = [entry for entry in layers if isinstance(entry[1], nn.Linear)]
    return [
        _tie("values", module, f"{table}.weight", f"{output}.weight", first)
        for table, embedding in tables
        for output, linear in outputs
        if (first := _weight(embedding)) is not None
        and (second := _weight(linear)) is not None
        and _start_equal(first, second)
    ]


def _is_end(module: Module) -> bool:
    weight = _weight(module) if isinstance(module, (nn.Embedding, nn.Linear)) else None
    return weight is not None and weight.requires_grad


def _weight(module: Module) -> Tensor | None:
    """The weight as it is stored; a computed one, such as of spectral norm, changes when read."""
    return module._parameters.get("weight")


def _start_equal(first: Tensor, second: Tensor) -> bool:
    if first is second or first.shape != second.shape or first.numel() < _MIN_ELEMENTS:
        return False
    comparable = not first.is_meta and first.device == second.device
    if not comparable or first.dtype != second.dtype or first.data_ptr() == second.data_ptr():
        return False
    varied = bool((first != first.reshape(-1)[0]).any())
    return varied and torch.equal(first, second)


def _tie(kind: TieKind, module: Module, first: str, second: str, parameter: Tensor) -> TieFacts:
    return TieFacts(
        kind=kind,
        module=type(module).__name__,
        first=first,
        second=second,
        shape=tuple(parameter.shape),
    )
