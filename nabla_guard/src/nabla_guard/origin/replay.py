"""Executes the kept step again, op by op, and leaves no trace of it.

The parts of the step run in the order in which they ran, from the buffers, random states and
autocast modes that were kept. Gradients go into fresh tensors; what is written to memory that was
there before is undone at the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from torch import Tensor
from torch.autograd.graph import _engine_run_backward
from torch.nn import Module

from nabla_core.issue import Phase

from ..taps.place import Line
from .ambient import all_generators_kept
from .arguments import name_rows
from .as_it_ran import eager, thawed, training
from .awaited import awaited
from .batch import batch_of
from .births import BirthMode
from .declared import Declarations
from .findings import Findings
from .kept import Kept
from .ledger import Ledger, Origin
from .loaded import Loaded, replaced_by
from .naming import bare
from .nested import leaves
from .parts import (
    differentiates,
    hooks_in,
    is_pass,
    leaves_outside,
    left_out,
    module_of,
    outputs_of,
    phases_of,
    relevant,
    shows_loss,
    site_of,
    updating,
    uses_of,
)
from .reach import ReadOnce, functions_of, reach_kept
from .references import Outside
from .root_state import buffer_of
from .sites import Site, Sites
from .states import FINITE
from .tape import BackwardEntry, CallEntry, Entry, OpEntry
from .undo import (
    UndoLog,
    attributes_kept,
    buffers_swapped,
    gradients_kept,
    is_hooked_late,
    muted,
    own_modes_off,
)

__all__ = ["Ending", "execute_again"]

Ending = Literal["pass", "derivatives", "loss"]


class Missing(Exception):
    """A part of the step that cannot be executed again."""


def execute_again(
    kept: Kept,
    parameters: Sequence[tuple[str, Tensor]],
    since: int = 0,
    *,
    ends_in: Ending = "pass",
) -> Findings:
    """Execute the kept step again and return what was born in it.

    Args:
        kept: the step, of the calling thread.
        parameters: those that the optimizer is about to change, with their names.
        since: number of the tape at which the optimizer last stepped.
        ends_in: what is to be judged: gradients, the derivatives that the last entry takes and
            which went into no gradient, or a loss before whose backward pass the loop was left.

    Returns:
        The findings; ``problems`` says what could not be done again, and is never raised.
    """
    replay = _Replay(kept, parameters, since, ends_in)
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
        ends_in: Ending,
    ) -> None:
        self._kept = kept
        tape = kept.tape
        self._tape = tape
        self._uses = uses_of(tape.entries)
        self._entries = relevant(tape.entries, since, self._uses)
        self._problems = list(tape.problems)
        self._sites = Sites(_Replay._do.__code__)
        self._ledger = Ledger()
        self._undo = UndoLog()
        self._mode = BirthMode(self._sites, self._ledger, self._undo)
        self._made: dict[int, list[Tensor]] = {}
        self._written: dict[int, Line] = {}
        self._parameters = list(parameters)
        self._again: Mapping[int, Tensor] = {}  # batches that were made again
        self._derived, self._is_open = ends_in == "derivatives", ends_in == "loss"
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
        functions = [*functions_of(roots), *hooks_in(self._entries)]
        outside = leaves_outside(roots, self._entries, self._parameters)
        self._has_late_hooks = any(map(is_hooked_late, outside))
        with (
            self._quiet(),
            muted(),
            all_generators_kept(),
            attributes_kept(roots),
            reach_kept(functions, roots),
            buffers_swapped(kept),
            gradients_kept(outside),
            self._undo,
            eager(),
            self._sites.followed(),
        ):
            declare = Declarations(self._ledger, self._line_of)
            declare.models(map(bare, roots))
            declare.parameters(self._parameters)
            declare.arguments(self._entries)
            if self._tape.has_writes:
                declare.written(self._entries)
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
            own = buffer_of(owner, name)
            line = None if own is None else self._tape.written_at(own)
            if line is not None:
                self._written[id(copy)] = line
        return kept

    def _line_of(self, tensor: Tensor) -> Line | None:
        """Where the user's code last wrote to a tensor, if that may have made it bad."""
        return self._written.get(id(tensor)) or self._tape.written_at(tensor)

    # ------------------------------------------------------------------ doing it again
    def run(self) -> None:
        """Execute all entries; a problem ends it."""
        last = self._last_pass()
        phases = phases_of(self._entries, self._uses, "loss" if self._is_open else "backward")
        if self._derived:
            phases |= dict.fromkeys(updating(self._entries, self._uses), "parameter")
        self._mode.batch = batch_of(self._entries)
        with self._mode:
            for loaded in self._kept.loaded:
                self._load(loaded)
            decided = self._execute(phases, last)
        if self._is_open and not decided:
            self._judge_roots(awaited(self._tape, self._uses, self._made))
        elif not decided:
            self._judge_gradients()
            if self._gradient_births is None:
                for text in left_out(self._entries, self._has_late_hooks):
                    self.problem(text)

    def _load(self, loaded: Loaded) -> None:
        """Make a bad batch again; where that fails, it is named and its maker is not."""
        batch = loaded.tensors()
        if not any(map(self._ledger.state, batch)):
            return
        self._sites.enter(Site("data", loaded.place, call=loaded.place))
        try:
            with reach_kept(loaded.functions), self._mode.awake():
                again = loaded.again()
            self._again = {**self._again, **replaced_by(batch, again)}
        except Exception:
            return

    def _execute(self, phases: Mapping[int, Phase], last: int) -> bool:
        """Execute entry after entry; return whether a loss or a pass before the last is bad."""
        for entry in self._entries:
            root = module_of(entry)
            inner = None if root is None else bare(root)
            self._sites.enter(site_of(entry, phases[entry.number]), inner)
            if not last and differentiates(entry) and self._judge_roots(outputs_of(entry)):
                return True
            judged = entry if isinstance(entry, BackwardEntry) and not self._is_open else None
            if judged is not None and self._judge_roots(self._roots(judged)):
                return True  # no derivative of a bad loss decides anything
            try:
                with entry.ambient.restored(), self._mode.awake():
                    self._do(entry)
            except Missing:
                if isinstance(entry, BackwardEntry) or (self._derived and differentiates(entry)):
                    raise
                continue  # it used something from before this step; only a loss needs all of it
            if judged is not None and judged.number != last:
                self._judge_gradients()
                if self._gradient_births is not None:
                    return True
        return False

    def _last_pass(self) -> int:
        """Return the number of the last pass that writes gradients; 0 where none counts."""
        if self._is_open:
            return 0
        if not any(map(is_pass, self._entries)):
            raise Missing("no backward pass was seen in this step")
        if self._derived:
            return 0
        return max((e.number for e in self._entries if isinstance(e, BackwardEntry)), default=0)

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
        tensor = self._again.get(id(value.tensor))
        if tensor is not None:
            return tensor
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
