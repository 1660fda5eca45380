"""The parts of a training program whose state decides what the next step computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch.nn import Module, ModuleDict
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

from nabla_core.errors import UsageError
from nabla_guard.origin.naming import uncompiled

from .stateful import Stateful, Value, check_stateful

__all__ = ["Parts", "collect_parts", "compiled_wrappers", "in_turn", "unwrapped", "with_inner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one program.

    Attributes:
        model: without the wrappers of ``torch.compile`` and data parallelism.
        optimizers: in the order in which they were given.
        schedulers: likewise.
        scaler: gradient scaler.
        extra: further state by name: averages, generators, tensors, anything with a state dict.
        loader: the training data.
        found: names in ``extra`` that nobody gave: they were found in the process.
        wrappers: what ``torch.compile`` made of the model, or of parts of it.
    """

    model: Module
    optimizers: tuple[Optimizer, ...] = ()
    schedulers: tuple[Stateful, ...] = ()
    scaler: Stateful | None = None
    extra: Mapping[str, Value] = field(default_factory=dict)
    loader: Iterable[object] | None = None
    found: tuple[str, ...] = ()
    wrappers: tuple[Module, ...] = ()

    @property
    def modules(self) -> dict[str, Module]:
        """Those of the extra parts that are modules, without wrappers."""
        return {name: value for name, value in self.extra.items() if isinstance(value, Module)}

    @property
    def others(self) -> dict[str, Value]:
        """Those of the extra parts that are no modules."""
        return {name: value for name, value in self.extra.items() if not isinstance(value, Module)}


def with_inner(optimizers: tuple[Optimizer, ...]) -> tuple[Optimizer, ...]:
    """Add the optimizers that one of a person's own makes step inside it: their state is theirs."""
    found = {id(one): one for one in optimizers}
    for one in optimizers:
        if type(one).__module__.startswith("torch."):
            continue
        for inner in vars(one).values():
            if isinstance(inner, Optimizer):
                found.setdefault(id(inner), inner)
    return tuple(found.values())


def in_turn(
    schedulers: Iterable[Stateful], optimizers: Sequence[Optimizer]
) -> tuple[Stateful, ...]:
    """Return schedulers in the order of their optimizers; those of none of them come last."""
    turns = {id(one): turn for turn, one in enumerate(optimizers)}
    last = len(turns)
    return tuple(
        sorted(schedulers, key=lambda one: turns.get(id(getattr(one, "optimizer", None)), last))
    )


def unwrapped(model: Module) -> Module:
    """Return the module inside ``torch.compile`` and data parallelism: its names are the same with
    and without them."""
    while True:
        if isinstance(model, (DistributedDataParallel, DataParallel)):
            model = model.module
            continue
        inner = uncompiled(model)
        if inner is model:
            return model
        model = inner


def compiled_wrappers(models: Iterable[object]) -> tuple[Module, ...]:
    """Return what ``torch.compile`` made of these models."""
    return tuple(
        part
        for model in models
        if isinstance(model, Module)
        for part in model.modules()
        if uncompiled(part) is not part
    )


def collect_parts(
    what: str,
    model: Module | Iterable[Module] | Mapping[str, Module],
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    **others: object,
) -> Parts:
    """Check what a person gave and put it in order.

    Args:
        what: name of the call in errors, e.g. ``"capture"``.
        model: the model; several as a list, or as a mapping that names them.
        optimizer: one, several or none.
        **others: ``scheduler`` (one or several), ``scaler``, ``extra``, ``loader``.

    Raises:
        UsageError: a part is none of the supported kinds.
    """
    wrappers = compiled_wrappers(_models(model))
    model = _one_model(what, model)
    optimizers = with_inner(tuple(_optimizer(what, one) for one in _several(optimizer)))
    extra = others.get("extra") or {}
    if not isinstance(extra, Mapping):
        raise UsageError(
            f"{what}(extra={type(extra).__name__}): needs a mapping from name to state"
        )
    for name, value in extra.items():
        check_stateful(value, f"{what}(extra[{name!r}])")
    loader = others.get("loader")
    if loader is not None and not isinstance(loader, Iterable):
        raise UsageError(f"{what}(loader={type(loader).__name__}): needs something to iterate over")
    return Parts(
        model=unwrapped(model),
        wrappers=wrappers,
        optimizers=optimizers,
        schedulers=in_turn(
            [_stateful(what, "scheduler", one) for one in _several(others.get("scheduler"))],
            optimizers,
        ),
        scaler=None
        if others.get("scaler") is None
        else _stateful(what, "scaler", others["scaler"]),
        extra=dict(extra),
        loader=loader,
    )


def _one_model(what: str, given: object) -> Module:
    """Return the model; a container around several, numbered as a captured script numbers them."""
    if isinstance(given, Mapping):
        named = dict(given)
    elif isinstance(given, (list, tuple)):
        named = {f"{index}_{type(one).__name__}": one for index, one in enumerate(given)}
    else:
        named = {"": given}
    for value in named.values():
        if not isinstance(value, Module):
            raise UsageError(
                f"{what}(model={type(value).__name__}): needs a torch.nn.Module, or several"
            )
    if isinstance(given, Module):
        return given
    if not named:
        raise UsageError(f"{what}(model={given!r}): needs at least one torch.nn.Module")
    return ModuleDict({name: unwrapped(value) for name, value in named.items()})


def _models(given: object) -> tuple[object, ...]:
    if isinstance(given, Mapping):
        return tuple(given.values())
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def _several(given: object) -> tuple[object, ...]:
    if given is None:
        return ()
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def _optimizer(what: str, value: object) -> Optimizer:
    if not isinstance(value, Optimizer):
        raise UsageError(f"{what}(optimizer={type(value).__name__}): needs a torch.optim.Optimizer")
    return value


def _stateful(what: str, name: str, value: object) -> Stateful:
    if not isinstance(value, Stateful):
        raise UsageError(
            f"{what}({name}={type(value).__name__}): needs state_dict() and load_state_dict()"
        )
    return value
