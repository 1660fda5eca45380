"""Executes the kept step again, op by op, and leaves no trace of it.

The parts of the step run in the order in which they ran, from the buffers, random states and
autocast modes that were kept. Gradients go into fresh tensors; what is written to memory that was
there before is undone at the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from torch import Tensor
from torch.autograd.graph import _engine_run_backward
from torch.nn import Module

from ..loop.exact import tensors_in
from ..taps.place import Line
from .ambient import all_generators_kept
from .arguments import arguments_of, name_rows
from .as_it_ran import eager, thawed, training
from .batch import batch_of
from .births import BirthMode
from .findings import Findings, Source
from .kept import Kept
from .ledger import Ledger, Origin
from .naming import bare, model_name, plain_path
from .nested import leaves
from .parts import (
    differentiates,
    found_in,
    hooks_in,
    is_pass,
    module_of,
    outputs_of,
    phases_of,
    relevant,
    shows_loss,
    site_of,
    updating,
)
from .reach import ReadOnce, functions_of, reach_kept
from .sites import Sites
from .states import FINITE
from .tape import BackwardEntry, CallEntry, Entry, OpEntry, Outside
from .undo import (
    UndoLog,
    attributes_kept,
    buffers_swapped,
    gradients_kept,
    is_hooked_late,
    muted,
    own_modes_off,
)

__all__ = ["execute_again"]


class Missing(Exception):
    """A part of the step that cannot be executed again."""


def execute_again(
    kept: Kept,
    parameters: Sequence[tuple[str, Tensor]],
    since: int = 0,
    *,
    derived: bool = False,
) -> Findings:
    """Execute the kept step again and return what was born in it.

    Args:
        kept: the step, of the calling thread.
        parameters: those that the optimizer is about to change, with their names.
        since: number of the tape at which the optimizer last stepped.
        derived: the last entry takes the derivatives that are bad; they went into no gradient.

    Returns:
        The findings; ``problems`` says what could not be done again, and is never raised.
    """
    replay = _Replay(kept, parameters, since, derived=derived)
    try:
        with replay.traceless():
            replay.run()
    except (Missing, ReadOnce) as missing:
        replay.problem(str(missing))
    except Exception as error:
        replay.problem(f"executing the step again raised {type(error).__name__}: {error}")
    return replay.findings()


class _Replay:
    """One re-execution; see :func:`execute_again`."""

    def __init__(
        self,
        kept: Kept,
        parameters: Sequence[tuple[str, Tensor]],
        since: int,
        *,
        derived: bool,
    ) -> None:
        self._kept = kept
        self._entries = relevant(kept.tape.entries, since)
        self._problems = list(kept.tape.problems)
        self._sites = Sites(_Replay._do.__code__)
        self._ledger = Ledger()
        self._undo = UndoLog()
        self._mode = BirthMode(self._sites, self._ledger, self._undo)
        self._made: dict[int, list[Tensor]] = {}
        self._written: dict[int, Line] = {}
        self._parameters = list(parameters)
        self._derived = derived  # those of the last entry count, not what is in gradients
        self._has_late_hooks = False
        self._loss_births: frozenset[int] | None = None
        self._gradient_births: frozenset[int] | None = None

    # ------------------------------------------------------------------ what came out
    def problem(self, text: str) -> None:
        """Note why something could not be executed again."""
        if text not in self._problems:
            self._problems.append(text)

    def findings(self) -> Findings:
        """Return what was found so far."""
        return Findings(
            births=tuple(self._mode.births),
            loss=self._loss_births,
            gradients=self._gradient_births,
            loss_seen=any(map(shows_loss, self._entries)),
            problems=self._problems,
        )

    # ------------------------------------------------------------------ leaving no trace
    @contextmanager
    def traceless(self) -> Iterator[None]:
        """Undo at the end of the block whatever the re-execution changes."""
        roots = list({id(m): m for m in map(module_of, self._entries) if m is not None}.values())
        kept = [entry for root in roots for entry in self._buffers(root)]
        with ExitStack() as stack:
            stack.enter_context(self._quiet())
            stack.enter_context(muted())
            stack.enter_context(all_generators_kept())
            stack.enter_context(attributes_kept(roots))
            stack.enter_context(reach_kept([*functions_of(roots), *hooks_in(self._entries)], roots))
            stack.enter_context(buffers_swapped(kept))
            leaves_outside = self._leaves(roots)
            self._has_late_hooks = any(map(is_hooked_late, leaves_outside))
            stack.enter_context(gradients_kept(leaves_outside))
            stack.callback(self._undo.restore)
            stack.enter_context(eager())
            stack.enter_context(self._sites.followed())
            self._declare_all(roots)
            yield

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        self._kept.replaying = True
        try:
            with warnings.catch_warnings(), own_modes_off():
                warnings.simplefilter("ignore")
                yield
        finally:
            self._kept.replaying = False

    def _buffers(self, root: Module) -> list[tuple[Module, str, Tensor]]:
        state = self._kept.roots.get(id(root))
        kept = [] if state is None else state.kept_buffers()
        for owner, name, copy in kept:
            own = owner._buffers.get(name)
            line = None if own is None else self._kept.tape.written_at(own)
            if line is not None:
                self._written[id(copy)] = line
        return kept

    def _leaves(self, roots: Sequence[Module]) -> list[Tensor]:
        """Every tensor outside whose gradient the re-execution may write."""
        found: list[Tensor] = [parameter for root in roots for parameter in root.parameters()]
        found += [tensor for _, tensor in self._parameters]
        for entry in self._entries:
            found += [o.tensor for _, o in found_in((entry.args, dict(entry.kwargs)), Outside)]
        unique = {id(tensor): tensor for tensor in found if tensor.is_leaf and tensor.requires_grad}
        return list(unique.values())

    def _declare_all(self, roots: Sequence[Module]) -> None:
        for root in map(bare, roots):
            model = model_name(root)
            for name, parameter in root.named_parameters():
                self._declare(parameter, Origin("parameter", plain_path(name), model))
            for name, buffer in root.named_buffers():
                self._declare(buffer, Origin("buffer", plain_path(name), model))
        for name, tensor in self._parameters:
            self._declare(tensor, Origin("parameter", name))
        for entry in self._entries:
            if isinstance(entry, CallEntry):
                self._declare_arguments(entry)

    def _declare_arguments(self, entry: CallEntry) -> None:
        model = model_name(entry.module)
        source: Source = "input" if entry.has_parameters else "outside"
        for argument, value in arguments_of(entry):
            for name, outside in found_in(value, Outside, argument):
                self._declare(outside.tensor, Origin(source, name, model))
            for name, tensor in tensors_in(value, argument):  # inside of objects
                self._declare(tensor, Origin(source, name, model))

    def _declare(self, tensor: Tensor, origin: Origin) -> None:
        line = self._written.get(id(tensor)) or self._kept.tape.written_at(tensor)
        self._ledger.declare(tensor, origin._replace(line=line))

    # ------------------------------------------------------------------ doing it again
    def run(self) -> None:
        """Execute all entries; a problem ends it."""
        last = self._last_pass()
        phases = phases_of(self._entries)
        if self._derived:
            phases |= dict.fromkeys(updating(self._entries), "parameter")
        self._mode.batch = batch_of(self._entries)
        for entry in self._entries:
            root = module_of(entry)
            inner = None if root is None else bare(root)
            self._sites.enter(site_of(entry, phases[entry.number]), inner)
            if not last and differentiates(entry) and self._judge_roots(outputs_of(entry)):
                return
            if isinstance(entry, BackwardEntry) and self._judge_roots(self._roots(entry)):
                return  # no derivative of a bad loss decides anything
            try:
                with entry.ambient.restored(), self._mode:
                    self._do(entry)
            except Missing:
                if isinstance(entry, BackwardEntry) or (self._derived and differentiates(entry)):
                    raise
                continue  # it used something from before this step; only a loss needs all of it
            if isinstance(entry, BackwardEntry) and entry.number != last:
                self._judge_gradients()
                if self._gradient_births is not None:
                    return
        self._judge_gradients()
        if self._gradient_births is None:
            self._say_what_was_left_out()

    def _last_pass(self) -> int:
        """Return the number of the last pass that writes gradients; 0 where none counts."""
        if not any(map(is_pass, self._entries)):
            raise Missing("no backward pass was seen in this step")
        if self._derived:
            return 0
        return max((e.number for e in self._entries if isinstance(e, BackwardEntry)), default=0)

    def _say_what_was_left_out(self) -> None:
        """Say why gradients may have been bad although nothing bad was found."""
        if self._has_late_hooks:
            self.problem("hooks on accumulated gradients are not executed again")
        roots = [root for root in map(module_of, self._entries) if root is not None]
        if any(root is not bare(root) for root in roots):
            self.problem("only this process was executed again, and gradients are those of all")

    def _do(self, entry: Entry) -> None:
        if isinstance(entry, CallEntry):
            outcome = self._call(entry)
        elif isinstance(entry, BackwardEntry):
            outcome = self._backward(entry)
        elif isinstance(entry, OpEntry):
            if entry.generators is not None:
                entry.generators.restore()
            outcome = entry.function(*self._arguments(entry), **self._named(entry))
        else:
            return
        self._made[entry.number] = list(leaves(outcome))

    def _call(self, entry: CallEntry) -> object:
        module = entry.module
        self._check(entry)
        name_rows(entry, self._made, self._ledger, self._mode.births)
        if entry.generators is not None:
            entry.generators.restore()
        with training(module, entry.training):
            return bare(module)(*self._arguments(entry), **self._named(entry))

    def _check(self, entry: CallEntry) -> None:
        if entry.mutated:
            self.problem(f"{type(entry.module).__name__} changed its own argument in place")
        state = self._kept.roots.get(id(entry.module))
        if state is not None and state.version() != entry.version:
            self.problem("parameters were changed between this step's forward pass and its end")

    def _backward(self, entry: BackwardEntry) -> tuple[Tensor, ...]:
        _engine_run_backward(self._roots(entry), *self._arguments(entry), **self._named(entry))
        return ()

    def _roots(self, entry: BackwardEntry) -> tuple[Tensor, ...]:
        thawed = map(self._thaw, entry.roots)
        roots = tuple(root for root in thawed if isinstance(root, Tensor))
        if any(root.grad_fn is None and not root.requires_grad for root in roots):
            raise Missing("the loss was made by something that is not a function of torch")
        return roots

    def _judge_roots(self, roots: Sequence[object]) -> bool:
        """Look at losses that are differentiated; return whether one is bad."""
        for tensor in leaves([self._thaw(root) for root in roots]):
            if self._ledger.state(tensor) != FINITE:
                self._loss_births = self._mode.descent(tensor)
                return True
        return False

    def _judge_gradients(self) -> None:
        grads = [parameter.grad for _, parameter in self._parameters]
        if self._derived:
            grads = list(self._made.get(self._entries[-1].number, ()))
        bad = [grad for grad in grads if grad is not None and self._ledger.state(grad) != FINITE]
        if bad:
            births = (self._ledger.births(grad) or frozenset() for grad in bad)
            self._gradient_births = frozenset().union(*births)

    def _arguments(self, entry: Entry) -> list[object]:
        return [self._thaw(value) for value in entry.args]

    def _named(self, entry: Entry) -> dict[str, object]:
        return {name: self._thaw(value) for name, value in entry.kwargs.items()}

    def _thaw(self, value: object) -> object:
        return thawed(value, self._made, self._outside, Missing)

    def _outside(self, value: Outside) -> Tensor:
        tensor = value.tensor
        if value.version >= 0 and tensor._version != value.version and not tensor.requires_grad:
            self.problem("a tensor that the step had used was changed in place")
        if value.cut and tensor.grad_fn is not None:
            name = tensor.grad_fn.name()
            self.problem(f"{name} made a tensor outside of modules, where it could not be seen")
            unseen = tensor.detach().requires_grad_()
            self._ledger.declare(unseen, Origin("unseen", name))
            return unseen
        return tensor
