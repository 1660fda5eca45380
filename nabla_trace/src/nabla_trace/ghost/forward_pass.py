"""One watched run of model and loss, with a few samples or with all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module

from .call import Call, Origin, Path
from .function_watch import FunctionWatch
from .third_party import any_module_rule, module_rule

__all__ = ["Subject", "module_units"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is studied.

    Attributes:
        model: the model.
        parameters: name → parameter whose gradients are wanted.
    """

    model: Module
    parameters: Mapping[str, Tensor]

    @property
    def modules(self) -> list[tuple[str, Module]]:
        """All modules of the model as it is now, with their paths."""
        return list(self.model.named_modules())

    @property
    def names(self) -> dict[int, str]:
        """Identity of each parameter → its name."""
        return {id(parameter): name for name, parameter in self.parameters.items()}


@contextmanager
def module_units(subject: Subject, watch: FunctionWatch) -> Iterator[None]:
    """Treat modules that a third party gave a rule for as one call each."""
    wanted = {id(parameter) for parameter in subject.parameters.values()}
    handles = []
    for module in subject.model.modules() if any_module_rule() else ():
        if module_rule(module) is None:
            continue
        before, after = _unit_hooks(watch, wanted)
        handles.append(module.register_forward_pre_hook(before))
        handles.append(module.register_forward_hook(after, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


Before = Callable[[Module, tuple[object, ...]], None]
After = Callable[[Module, tuple[object, ...], dict[str, object], object], None]


def _unit_hooks(watch: FunctionWatch, wanted: set[int]) -> tuple[Before, After]:
    was_paused = []

    def before(module: Module, args: tuple[object, ...]) -> None:
        was_paused.append(watch.paused)
        watch.paused = True

    def after(
        module: Module, args: tuple[object, ...], kwargs: dict[str, object], out: object
    ) -> None:
        watch.paused = was_paused.pop()
        if watch.paused or not watch.is_tainted(args, kwargs):
            return
        watch.taint(out)
        if isinstance(out, Tensor) and out.grad_fn is not None and torch.is_grad_enabled():
            _meet_unit(watch, module, (args, kwargs), out, wanted)

    return before, after


def _meet_unit(
    watch: FunctionWatch,
    module: Module,
    given: tuple[tuple[object, ...], dict[str, object]],
    out: Tensor,
    wanted: set[int],
) -> None:
    tracked: dict[Path, Origin] = {
        ("parameter", name): Origin(parameter, frozenset({id(parameter)}), True)
        for name, parameter in module.named_parameters()
        if id(parameter) in wanted
    }
    if not tracked:
        return
    args = tuple(a.detach() if isinstance(a, Tensor) else a for a in given[0])
    kwargs = {k: v.detach() if isinstance(v, Tensor) else v for k, v in given[1].items()}
    shapes: dict[Path, tuple[int, ...]] = {
        (n,): tuple(a.shape) for n, a in enumerate(args) if isinstance(a, Tensor)
    }
    call = Call(
        func=module,
        name=type(module).__name__,
        args=args,
        kwargs=kwargs,
        tracked=tracked,
        tainted=frozenset(shapes),
        shapes=shapes,
        samples=watch.samples,
    )
    watch.meet(call, [out])
