"""Terms of the loss whose gradient was cut: followed in three early steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..facts import Place
from ..loop.watch import EVERY_EVENT, Watch
from ..origin.naming import is_compiled
from .value_trace import ValueTrace

if TYPE_CHECKING:
    from torch.nn import Module
    from torch.optim import Optimizer

    from ..loop.book import OptimizerRecord
    from ..loop.live import LiveLoop
    from ..loop.roots import RootRecord

__all__ = ["DeadTerm", "TermWatch"]

_STEPS = 3
_MAX_OPTIMIZERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadTerm:
    """An addend of a scalar loss that has no gradient although trained parameters decide its value.

    Attributes:
        value: of the addend.
        total: of the loss.
        kind: how the gradient was cut, see :class:`.value_trace.ValueCut`.
        parameters: number of trained parameters that it depends on.
        cut_at: where the gradient was cut.
    """

    value: float
    total: float
    kind: str
    parameters: int
    cut_at: Place | None


class TermWatch(Watch):
    """Follows values in the three steps after the first one; in more with several optimizers.

    Attributes:
        dead: addends without gradient of the backward passes since the last step.
        steps: steps that were followed so far.
    """

    follows = True

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.dead: list[DeadTerm] = []
        self.steps = 0
        self._stepped: set[int] = set()
        self._trace: ValueTrace | None = None
        self._unsuitable = False

    @property
    def patient(self) -> frozenset[str]:
        """See :class:`.watch.Watch`."""
        return EVERY_EVENT if self._trace is None and self._is_done else frozenset()

    @property
    def _is_done(self) -> bool:
        """Whether enough steps were followed: three, and as many for each optimizer in turn."""
        return self.steps >= _STEPS * max(1, min(len(self._stepped), _MAX_OPTIMIZERS))

    def stop(self) -> None:
        """Stop following and let go of every tensor."""
        self._end()
        if self._trace is not None:
            self._trace.forget()

    def forward_ended(
        self,
        root: RootRecord,
        module: Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> None:
        """Notice modules that a function mode would make compute differently."""
        if self.steps or self._unsuitable:
            return
        self._unsuitable = is_compiled(module) or any(
            isinstance(found, (nn.TransformerEncoderLayer, nn.MultiheadAttention))
            for found in module.modules()
        )

    def backward_started(self, roots: Sequence[Tensor]) -> None:
        """Take the loss apart."""
        if self._trace is None:
            return
        held = {id(parameter) for parameter in self._held()}
        for root in roots:
            if root.numel() == 1:
                self.dead.extend(_dead_terms(self._trace, root, held))

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """The step is complete: stop following."""
        self._end()

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """Follow the next step, unless enough were."""
        self.dead = []
        if self.steps <= _STEPS:
            self._stepped.add(id(record))
        if self._trace is not None or self._is_done or self._unsuitable:
            return
        if torch._C._len_torch_function_stack():
            return  # leaving somebody else's mode before ours would take ours away
        self.steps += 1
        self._trace = ValueTrace(lambda error: self.loop.watches.drop(self, error))
        self._trace.__enter__()  # type: ignore[no-untyped-call]

    def _end(self) -> None:
        trace = self._trace
        if trace is None:
            return
        trace.forget()
        count = torch._C._len_torch_function_stack()
        if count and torch._C._get_function_stack_at(count - 1) is trace:
            trace.__exit__(None, None, None)
            self._trace = None

    def _held(self) -> Iterator[Tensor]:
        for record in self.loop.book:
            for found in record.records:
                parameter = found.ref()
                if parameter is not None:
                    yield parameter


def _dead_terms(trace: ValueTrace, root: Tensor, held: set[int]) -> Iterator[DeadTerm]:
    terms = list(trace.addends(root))
    live = {cut.serial for term in terms if term.requires_grad for cut in trace.cuts_of(term)}
    for term in terms:
        cuts = trace.cuts_of(term)
        if term.requires_grad or trace.is_copy(term):
            continue
        if any(cut.serial in live for cut in cuts):
            # a detached value that also feeds a live term is meant; a derivative that nothing can
            # flow through (autograd.grad without create_graph) is not, whatever it was taken at
            cuts = tuple(cut for cut in cuts if cut.kind == "grad" and cut.serial not in live)
        own = [cut for cut in cuts if cut.parameters & held]
        if own:
            reached: set[int] = set()
            for cut in own:
                reached |= cut.parameters & held
            yield DeadTerm(
                value=float(term.detach()),
                total=float(root.detach()),
                kind=own[0].kind,
                parameters=len(reached),
                cut_at=own[0].place,
            )
