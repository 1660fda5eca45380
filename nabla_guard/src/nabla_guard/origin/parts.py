"""Which noted parts of a step are to be executed again, and to which phase each belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from types import FunctionType
from typing import TypeGuard, TypeVar

import torch
from torch import Tensor
from torch.nn import Module

from nabla_core.issue import Phase

from ..taps.structure import modules_of, parameters_in
from .naming import bare, model_name
from .references import Outside, made_in, references_in
from .sites import Site
from .tape import BackwardEntry, CallEntry, Entry, OpEntry

__all__ = [
    "differentiates",
    "found_in",
    "hooks_in",
    "is_model",
    "is_pass",
    "leaves_outside",
    "left_out",
    "module_of",
    "outputs_of",
    "phases_of",
    "relevant",
    "shows_loss",
    "site_of",
    "Uses",
    "updating",
    "uses_of",
]

FoundT = TypeVar("FoundT")
Uses = Mapping[int, Set[int]]
"""The entries that each entry refers to, by number."""


def uses_of(entries: Iterable[Entry]) -> Uses:
    """Return which entries each of these refers to."""
    return {e.number: made_in(e.args, e.kwargs, _roots(e)) for e in entries}


def relevant(entries: Sequence[Entry], since: int, uses: Uses) -> list[Entry]:
    """Return the entries of the present step and those before it that it still depends on.

    Args:
        entries: what is kept, which may reach back further where several optimizers step.
        since: number of the tape at which the optimizer last stepped.
        uses: see :func:`uses_of`.
    """
    needed: set[int] = set()
    old: set[int] = set()
    for entry in reversed(entries):
        number = entry.number
        if number in needed or (number > since and is_pass(entry)):
            needed |= {number, *uses[number]}
    for entry in entries:
        if entry.number <= since or uses[entry.number] & old:
            old.add(entry.number)  # such as a log line about the loss of the step before
    return [entry for entry in entries if entry.number in needed or entry.number not in old]


def _roots(entry: Entry) -> tuple[object, ...]:
    return entry.roots if isinstance(entry, BackwardEntry) else ()


def is_pass(entry: Entry) -> bool:
    """Whether an entry takes derivatives, also such that write no gradient."""
    return isinstance(entry, BackwardEntry) or differentiates(entry)


def phases_of(
    entries: Sequence[Entry], uses: Uses, following: Phase = "backward"
) -> dict[int, Phase]:
    """Return the phase of each entry that is no call of a model.

    What comes before the first call of a model is data, also where a step has several passes, and
    so is what goes into a later one without coming from one; what comes between a model and the
    backward pass is loss, or forward if it goes into another model; what comes after the last
    backward pass works on gradients. Without any model, all before it counts as forward.

    Args:
        entries: the step.
        uses: see :func:`uses_of`.
        following: phase of what comes after the last pass: ``"loss"`` where one was to follow.
    """
    first = next((entry.number for entry in entries if is_model(entry)), None)
    phases: dict[int, Phase] = {}
    for entry in reversed(entries):
        if is_pass(entry):
            following = "loss"
        elif is_model(entry) and following == "loss":
            following = _before_a_model(entries, entry)
        phases[entry.number] = following
    fed, feeding = _fed_by_a_model(entries, uses), _feeding_a_model(entries, uses)
    for number, phase in phases.items():
        if phase == "loss" and (first is None or number in feeding):
            phases[number] = "forward" if first is None or number in fed else "data"
        elif phase == "loss" and first is not None and number < first:
            phases[number] = "data"
    return phases


def updating(entries: Sequence[Entry], uses: Uses) -> set[int]:
    """Return the entries that made what the last one takes derivatives by: an update by hand."""
    last = entries[-1]
    if not isinstance(last, OpEntry) or last.function is not torch.autograd.grad:
        return set()  # what a transform differentiates by is one of many arguments
    found = made_in(last.args[1:], last.kwargs.get("inputs"))
    for entry in reversed(entries):
        if entry.number in found:
            if is_pass(entry) or isinstance(entry, CallEntry):
                found.discard(entry.number)
            else:
                found |= uses[entry.number]
    return found


def _fed_by_a_model(entries: Sequence[Entry], uses: Uses) -> set[int]:
    """The entries that descend from the output of a model."""
    found: set[int] = set()
    for entry in entries:
        if is_model(entry) or not found.isdisjoint(uses[entry.number]):
            found.add(entry.number)
    return found


def _feeding_a_model(entries: Sequence[Entry], uses: Uses) -> set[int]:
    """The entries from which the arguments of a model descend."""
    found: set[int] = set()
    for entry in reversed(entries):
        if is_model(entry) or entry.number in found:
            found |= uses[entry.number]
    return found


def _before_a_model(entries: Sequence[Entry], model: Entry) -> Phase:
    """What comes before a call of a model is data, unless another was called in the same pass."""
    for entry in reversed(entries[: entries.index(model)]):
        if is_model(entry):
            return "loss"
        if isinstance(entry, BackwardEntry):
            return "data"
    return "data"


def site_of(entry: Entry, phase: Phase) -> Site:
    """Return where an entry is, outside of modules or in the model that it calls."""
    if not isinstance(entry, CallEntry):
        return Site(phase, entry.place, call=entry.place)
    model = model_name(entry.module)
    module = "" if entry.has_parameters else None
    phase = "forward" if entry.has_parameters else phase
    return Site(phase, entry.place, module=module, model=model, call=entry.place)


def differentiates(entry: Entry) -> bool:
    """Whether an entry takes derivatives: ``torch.autograd.grad`` or a transform."""
    if not isinstance(entry, OpEntry):
        return False
    return entry.differentiates or entry.function is torch.autograd.grad


def shows_loss(entry: Entry) -> bool:
    """Whether an entry takes derivatives of a loss that can be seen: transforms hide theirs."""
    return isinstance(entry, BackwardEntry) or (is_pass(entry) and not _is_transform(entry))


def _is_transform(entry: Entry) -> bool:
    return isinstance(entry, OpEntry) and entry.function is not torch.autograd.grad


def outputs_of(entry: Entry) -> tuple[object, ...]:
    """Return of what an entry takes derivatives, frozen."""
    return entry.args[:1] or (entry.kwargs.get("outputs"),)


def module_of(entry: Entry) -> Module | None:
    """Return the root module that an entry calls, if it calls one."""
    return entry.module if isinstance(entry, CallEntry) else None


def is_model(entry: Entry) -> TypeGuard[CallEntry]:
    """Whether an entry calls a module with parameters."""
    return isinstance(entry, CallEntry) and entry.has_parameters


def hooks_in(entries: Iterable[Entry]) -> Iterator[Callable[..., object]]:
    """Yield the user's own functions that run when entries outside of modules are executed.

    These are hooks on tensors, what a transform is applied to, and custom autograd functions.
    """
    for entry in entries:
        if not isinstance(entry, OpEntry):
            continue
        yield from (value for value in entry.args if isinstance(value, FunctionType))
        if isinstance(entry.function, partial):
            for value in entry.function.args:
                yield from vars(value).values() if isinstance(value, type) else ()


def found_in(value: object, kind: type[FoundT], name: str = "") -> Iterator[tuple[str, FoundT]]:
    """Yield the references of one kind in frozen arguments, with the path to each."""
    if type(value) is kind:
        yield name, value
    elif type(value) is tuple or type(value) is list:
        for index, item in enumerate(value):
            yield from found_in(item, kind, f"{name}[{index}]")
    elif type(value) is dict:
        for key, item in value.items():
            yield from found_in(item, kind, f"{name}[{key!r}]" if name else str(key))


def leaves_outside(
    roots: Iterable[Module], entries: Iterable[Entry], named: Iterable[tuple[str, Tensor]]
) -> list[Tensor]:
    """Return every tensor that was there before and whose gradient the entries may write.

    Args:
        roots: the modules that are called.
        entries: what is executed.
        named: the parameters of the optimizer.
    """
    found = [parameter for root in roots for parameter in parameters_in(modules_of(root))]
    found += [tensor for _, tensor in named]
    for entry in entries:
        found += [known.tensor for known in references_in(Outside, entry.args, entry.kwargs)]
    unique = {id(tensor): tensor for tensor in found if tensor.is_leaf and tensor.requires_grad}
    return list(unique.values())


def left_out(entries: Iterable[Entry], has_late_hooks: bool) -> Iterator[str]:
    """Say why gradients may have been bad although executing these again gave none that is.

    Args:
        entries: what was executed again.
        has_late_hooks: hooks run after a gradient was accumulated.
    """
    if has_late_hooks:
        yield "hooks on accumulated gradients are not executed again"
    roots = [root for root in map(module_of, entries) if root is not None]
    if any(root is not bare(root) for root in roots):
        yield "only this process was executed again, and gradients are those of all"
