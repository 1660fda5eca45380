"""A watched training loop: turns what the instrument delivers into facts and step records.

A step is closed when the outermost optimizer step is about to run (with a closure: has run), in one
batched pass over gradients, parameters, losses and root outputs, with one read per device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from nabla_core.problem import Problem

from ..facts import Call, NumberFacts, OptimizerFacts
from ..layers.nothing import NoLayers
from ..origin.explainer import Explainer
from ..origin.policy import OnNonFinite, StepPolicy
from ..taps.instrument import INSTRUMENT
from ..taps.optimizers import parameters_of
from ..taps.place import user_place
from .book import OptimizerBook, OptimizerRecord
from .calm import Calm
from .closing import Closing
from .early import count_nonzero
from .gradients import GradientTable
from .pending import Pending
from .roots import RootTable
from .scope import Scope
from .signals import is_ordinary
from .view import LoopView
from .watch import Watches

if TYPE_CHECKING:
    from nabla_core.session import Session

    from ..layers.watch import LayerWatch
    from ..options import Shadow

__all__ = ["LiveLoop"]

_EARLY_WRITES = 4
_AFTER_LOADING = 64


class LiveLoop:
    """A fact source: one or several models and optimizers that train in this process.

    Args:
        session: receives the step records.
        scope: what of the process to watch; everything by default.
        on_nonfinite: what to do with a step that is not finite.
    """

    name = "live loop"
    shadows = True  # whether steps may be compared with float64
    shadow: Shadow = "sample"  # which steps are compared with float64

    def __init__(
        self, session: Session, scope: Scope | None = None, on_nonfinite: OnNonFinite = "report"
    ) -> None:
        self.session = session
        self.policy = StepPolicy(on_nonfinite)
        self.scope = scope or Scope()
        self.gradients = GradientTable()
        self.roots = RootTable(self.gradients)
        self.book = OptimizerBook(self.gradients)
        self.layers: LayerWatch | NoLayers = NoLayers()
        self.every, self.due = 1, True  # read every this many steps; whether the next one is read
        self.stepping: OptimizerFacts | None = None
        self.numbers: NumberFacts | None = None
        self.index = 0
        self._stepped: set[int] = set()
        self._begun: list[tuple[int, ...]] = []  # what those held that made their first step in it
        self.pending = Pending()
        self.backwards = 0
        self.attentive = True
        self.wanted: frozenset[str] = frozenset()
        self._view = LoopView(self)
        self.watches = Watches(self)
        self.calm = Calm(self)
        self.explainer = Explainer(self.gradients)
        self.closing = Closing(self)

    # ------------------------------------------------------------------ as a fact source
    @property
    def offers(self) -> frozenset[str]:
        """Names of the signals and facts that this version of torch lets the loop give."""
        from .offers import offered

        return offered(INSTRUMENT.missing, layers=self.layers.measures, shadow=self.shadows)

    @property
    def facts(self) -> LoopView:
        """The facts, for detectors."""
        return self._view

    @property
    def coming(self) -> int:
        """The step that is being prepared: after a step of some optimizer, the next one."""
        return self.index + bool(self._stepped)

    def connect(self) -> None:
        """Connect to the session and learn what its selected rules need."""
        if self.session.source is None:
            self.session.connect(self)
        self.wanted = frozenset(
            need
            for detector in self.session.detectors
            for rule in detector.rules
            if self.session.selects(rule)
            for need in rule.needs
        )
        self.watches.start()
        self.calm.interrupt()  # entered again, a loop goes on as before if nothing has changed
        self.gradients.resume()
        chosen = self.scope.chosen
        for optimizer in chosen:
            self._optimizer(optimizer)
        if not chosen:
            self.book.search(self.scope.has_optimizer)
        self.explainer.arm(self.session)  # last: until then nothing but our own calls are made

    def close(self) -> None:
        """Look at what the last step left behind, and let go of the user's tensors."""
        self.watches.stop()
        self.pending.traffic.clear()
        self.pending.scaled = None
        self._view.take_last_numbers()

    # ------------------------------------------------------------------ what is delivered
    def forward_ended(
        self, module: Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> None:
        """See :class:`.listener.Listener`."""
        grad = torch.is_grad_enabled()
        quick = self.calm.quick
        root = None if quick is None or not grad else quick.called(module, args, kwargs, output)
        if root is None:
            if not self.scope.has_module(module):
                return
            root = self.roots.called(module)
            root.count(module, grad)
            if root.facts.parameters:
                if self.calm.on and (not grad or root.training is not module.training):
                    self.calm.attend()
                root.training = module.training
                if grad:
                    self.pending.traffic.add(root, args, kwargs, output)
        if self.watches.listening["forward_ended"]:
            self.watches.output = output
            self.watches.forward_ended(root, module, args, kwargs)
            self.watches.output = None
        if grad and self.layers.whole:
            self.layers.root_over()

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """See :class:`.listener.Listener`."""
        whole = self.layers.whole
        if whole:
            self.layers.backward_begins()
        if self.attentive:
            self.closing.look()
        if self.watches.listening["backward_started"]:
            self.watches.backward_started(roots)
        if whole:
            self.layers.backward_runs()

    def backward_ended(self, roots: Sequence[Tensor]) -> None:
        """See :class:`.listener.Listener`."""
        self.backwards += 1
        if self.layers.measures:
            self.layers.backward_over()
        if self.calm.quick is not None:
            self.calm.quick.written(roots, self.backwards)
            return
        written = self.gradients.written()
        if self.gradients.groups:
            call = Call(kind="write", backward=self.backwards)
            joined = self.gradients.joined(written)
            self.calm.written(written, call, self._loss(roots))
            self.watches.backward_ended(roots, joined, call)
            if self.pending.record is not None:
                self._look_inside(self.pending.record)
            return
        early = (
            written
            if self.attentive
            else [found for found in written if found.facts.writes <= _EARLY_WRITES]
        )
        place = user_place() if early else None
        flags = count_nonzero(early) if early else {}
        call = Call(kind="write", place=place, backward=self.backwards)
        self.book.note_writes(written, self._loss(roots), call, flags)
        self.watches.backward_ended(roots, written, call)
        if self.pending.record is not None:
            self._look_inside(self.pending.record)

    def gradients_cleared(self, owner: Optimizer | Module) -> None:
        """See :class:`.listener.Listener`."""
        if self.layers.measures:
            self.layers.cleared()
        quick = self.calm.quick
        if quick is not None and quick.optimizer() is owner:
            quick.cleared()
            return
        if self.calm.on and self.calm.cleared(owner):
            return
        if quick is not None:
            self.calm.attend()  # it follows one optimizer, and this is about something else
        self.gradients.wake()
        parameters = owner.parameters() if isinstance(owner, Module) else parameters_of(owner)
        lost = self.gradients.clear(self.gradients.known(parameters))
        if lost:
            self.book.note_clears(lost, by_hand=False)

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See :class:`.listener.Listener`."""
        record = self._optimizer(optimizer)
        self.calm.attend()
        self.attentive = True
        if record.facts.made_at is None:
            record.facts.made_at = user_place()

    def step_started(self, optimizer: Optimizer, closure: bool) -> None:
        """See :class:`.listener.Listener`."""
        if self.layers.whole:
            self.layers.step_begins()
        quick = self.calm.quick
        if quick is not None:
            if not closure and quick.step(optimizer):
                return
            self.calm.attend()
        record = self.pending.record = self._optimizer(optimizer)
        record.facts.closure = closure
        if record.judged:
            self.count_step(id(optimizer), None if record.facts.steps else record)
        if not closure:
            self.closing.close(record, optimizer)

    def step_ended(self, optimizer: Optimizer, closure: bool) -> None:
        """See :class:`.listener.Listener`."""
        pending, calm = self.pending, self.calm
        record, pending.record = pending.record, None
        if record is None:
            return
        if closure:
            self.closing.close(record, optimizer)
            pending.numbers = None
        quick = calm.quick
        if quick is not None:
            quick.ended(self.index)
        else:
            self.policy.end()
            self.watches.step_ended(record, optimizer)
            record.end_step(self.index, self.gradients.groups.get(id(record)))
            self.attentive = self.book.curious
            self.book.note_foreign_step(record)
        if not calm.on or self.index >= calm.due:
            calm.step_ended(record)
        if self.roots.now:
            self.roots.end_step()
        pending.traffic.clear()
        if self.layers.measures:
            self.layers.forget()
        self.due = not (self.index + 1) % self.every
        self.stepping = None

    def loss_scaled(self, loss: Tensor, scaled: Tensor) -> None:
        """See :class:`.listener.Listener`."""
        self.pending.scaled = (loss, scaled)

    def state_loaded(self, module: Module, keys: frozenset[str]) -> None:
        """See :class:`.listener.Listener`."""
        self.calm.attend(_AFTER_LOADING)
        for name, parameter in module.named_parameters():
            if name in keys:
                self.gradients.record(parameter).facts.loaded = True

    def failed(self, error: Exception) -> None:
        """See :class:`.listener.Listener`."""
        self.watches.stop()  # what they replaced lies on top of what is removed next
        self.session.problem(
            Problem(
                rule="NAB004",
                plugin="guard",
                message=f"the live loop raised {type(error).__name__}: {error}; "
                f"nothing was watched from step {self.index} on",
                hint="report it with the program that shows it; the training itself went on",
            )
        )

    def _optimizer(self, optimizer: Optimizer) -> OptimizerRecord:
        record = self.book.get(optimizer, self.scope.has_optimizer)
        if self.book.changed:
            self.book.changed = False
            self.calm.attend()
        return record

    def count_step(self, key: int, new: OptimizerRecord | None = None) -> None:
        """A new step of the loop begins when an optimizer steps that has stepped in this one, or
        one that was made anew in its place.

        Args:
            key: identity of the optimizer.
            new: its record, at its first step.
        """
        held = () if new is None else tuple(map(id, new.records))
        if key in self._stepped or (held and held in self._begun):
            self.index += 1
            self._stepped.clear()
            if self._begun:
                self._begun.clear()
        self._stepped.add(key)
        if held:
            self._begun.append(held)

    def _look_inside(self, stepping: OptimizerRecord) -> None:
        """A closure runs: look at its evaluation while the parameters are those it began with."""
        if stepping.judged and self.pending.numbers is None:
            self.closing.look_inside(stepping)

    def _loss(self, roots: Sequence[Tensor]) -> Tensor | None:
        """The scalar root of a backward pass, before loss scaling."""
        if len(roots) != 1 or roots[0].numel() != 1 or not is_ordinary(roots[0]):
            return None
        return self.pending.loss(roots[0])
