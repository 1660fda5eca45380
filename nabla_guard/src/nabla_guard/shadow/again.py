"""Executes the forward pass of the kept step once more, for as often as a shadow needs it.

Only what the last backward pass of the step depends on is executed: metrics, logging and other
micro-batches are left out. Random masks are drawn again from the kept states, so that dropout is
the same; what a forward pass leaves in buffers, attributes and plain Python state is put back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import CodeType

import torch
from torch import Tensor
from torch.nn import Module

from ..origin.ambient import all_generators_kept
from ..origin.as_it_ran import eager, thawed, training
from ..origin.batch import batch_of
from ..origin.kept import Kept
from ..origin.naming import bare
from ..origin.nested import leaves
from ..origin.parts import hooks_in
from ..origin.reach import functions_of, reach_kept
from ..origin.references import Made, Outside, made_in
from ..origin.tape import BackwardEntry, CallEntry, Entry, OpEntry
from ..origin.undo import (
    UndoLog,
    attributes_kept,
    buffers_swapped,
    gradients_kept,
    muted,
    own_modes_off,
)
from .mode import ShadowMode
from .needed import needed

__all__ = ["CannotExecute", "Step"]

_SCALINGS = frozenset({"__mul__", "__rmul__", "__truediv__", "div", "mul", "true_divide"})


class CannotExecute(Exception):
    """The step cannot be executed once more; the text says why."""


class Step:
    """The forward pass of a kept step.

    Args:
        kept: what the calling thread did since the last optimizer step.

    Attributes:
        records_graph: whether derivatives can be taken inside of it.
        modules: the root modules that it calls.
        batch: its batch.

    Raises:
        CannotExecute: there is no backward pass, or it depends on what was not kept.
    """

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        passes = [entry for entry in kept.tape.entries if isinstance(entry, BackwardEntry)]
        if not passes:
            raise CannotExecute("no backward pass was seen in the step")
        backward = passes[-1]
        known = {entry.number: entry for entry in kept.tape.entries}
        self._roots = tuple([_unscaled(root, known) for root in backward.roots])
        if not any(isinstance(root, Made) for root in self._roots):
            problems = kept.tape.problems or ["the loss was made by something that was not noted"]
            raise CannotExecute("; ".join(problems))
        try:
            self._entries = needed(kept.tape.entries, self._roots, backward.number)
        except LookupError as missing:
            raise CannotExecute(str(missing)) from None
        self.batch = batch_of(self._entries)
        self._made: dict[int, list[Tensor]] = {}
        self.records_graph = any(
            getattr(getattr(entry, "function", None), "__name__", "") == "grad"
            for entry in self._entries
        )
        self.modules = list({id(m): m for m in map(_module, self._entries) if m}.values())

    def execute(self, mode: ShadowMode) -> list[Tensor]:
        """Execute it under a shadow mode and return the losses.

        Raises:
            CannotExecute: something that it uses is gone.
            Exception: whatever the program raises.
        """
        self._made.clear()
        with self._traceless(mode.undo), mode.frames.followed():
            for entry in self._entries:
                if isinstance(entry, CallEntry):
                    mode.frames.enter_root(bare(entry.module))
                mode.frames.place = entry.place
                with entry.ambient.restored(), self._graph(), mode:
                    self._do(entry)
            roots = [self._thaw(root) for root in self._roots]
            losses = [root for root in roots if isinstance(root, Tensor)]
            for loss in losses:
                mode.frames.leave(loss)
        self._made.clear()
        return losses

    def _graph(self) -> AbstractContextManager[object]:
        """Keep no activation for a backward pass that will not come, unless it is asked for."""
        return nullcontext() if self.records_graph else torch.no_grad()

    @staticmethod
    def boundary() -> CodeType:
        """Return the code outside of which no line of the program lies."""
        return Step._do.__code__

    def _do(self, entry: Entry) -> None:
        args = [self._thaw(value) for value in entry.args]
        named = {name: self._thaw(value) for name, value in entry.kwargs.items()}
        generators = getattr(entry, "generators", None)
        if generators is not None:
            generators.restore()
        if isinstance(entry, CallEntry):
            with training(entry.module, entry.training):
                outcome = bare(entry.module)(*args, **named)
        elif isinstance(entry, OpEntry):
            outcome = entry.function(*args, **named)
        else:
            return
        self._made[entry.number] = list(leaves(outcome))

    @contextmanager
    def _traceless(self, undo: UndoLog) -> Iterator[None]:
        kept = [copy for root in self.modules for copy in self._buffers(root)]
        parameters = [p for root in self.modules for p in root.parameters()]
        self._kept.replaying = True
        try:
            with ExitStack() as stack:
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                stack.enter_context(own_modes_off())
                stack.enter_context(muted())
                stack.enter_context(all_generators_kept())
                functions = [*functions_of(self.modules), *hooks_in(self._entries)]
                stack.enter_context(reach_kept(functions, self.modules))
                stack.enter_context(attributes_kept(self.modules))
                stack.enter_context(buffers_swapped(kept))
                stack.enter_context(gradients_kept(parameters))
                stack.callback(undo.restore)
                stack.enter_context(eager())
                yield
        finally:
            self._kept.replaying = False

    def _buffers(self, root: Module) -> list[tuple[Module, str, Tensor]]:
        """Every buffer as it was before the call; what was not kept, as it is now."""
        state = self._kept.roots.get(id(root))
        kept = [] if state is None else state.kept_buffers()
        known = {(id(owner), name) for owner, name, _ in kept}
        rest = [
            (owner, name, buffer.detach().clone())
            for owner in root.modules()
            for name, buffer in owner._buffers.items()
            if buffer is not None and (id(owner), name) not in known and not buffer.is_inference()
        ]
        return kept + rest

    def _thaw(self, value: object) -> object:
        return thawed(value, self._made, _unlinked, CannotExecute)


def _unlinked(outside: Outside) -> Tensor:
    """The tensor, without the graph that nobody knows."""
    return outside.tensor.detach() if outside.cut else outside.tensor


def _module(entry: Entry) -> Module | None:
    return entry.module if isinstance(entry, CallEntry) else None


def _unscaled(root: object, known: Mapping[int, Entry]) -> object:
    """Return the loss before it was multiplied by a number, such as the scale of a scaler."""
    while isinstance(root, Made):
        entry = known.get(root.entry)
        name = getattr(getattr(entry, "function", None), "__name__", "")
        if not isinstance(entry, OpEntry) or name not in _SCALINGS or len(entry.args) != 2:
            break
        loss, factor = entry.args
        if not isinstance(loss, Made) or not _is_number(factor, known):
            break
        root = loss
    return root


def _is_number(value: object, known: Mapping[int, Entry]) -> bool:
    """Whether a factor does not depend on a model; a scale may be older than the step."""
    open_entries = made_in(value)
    seen: set[int] = set()
    while open_entries:
        number = open_entries.pop()
        entry = known.get(number)
        if isinstance(entry, CallEntry):
            return False
        seen.add(number)
        if entry is not None:
            open_entries |= made_in(entry.args, entry.kwargs) - seen
    return True
