"""``nabla.trace.attach``: samples, step size, noise and signal of a loop, every so many steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Literal, TypedDict, Unpack, get_args

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from nabla_core.errors import UsageError

from ..batches import outputs_in
from ..delivery import count_steps
from ..sampling import choose_parameters
from ..step_verdicts import EARLY_STEPS
from .findings import Findings
from .gradient_tap import GradientTap
from .inspection import Inspection
from .step_watch import StepWatch
from .tape import LossTape

__all__ = ["AttachOptions", "Attachment", "Part", "attach"]

Part = Literal["samples", "step", "noise", "signal"]


class AttachOptions(TypedDict, total=False):
    """Keyword arguments of :func:`attach`.

    Attributes:
        every: look at one step in so many; step probes are also taken in the first steps.
        what: which parts.
        budget_mb: memory for temporaries.
    """

    every: int
    what: Iterable[Part]
    budget_mb: float


class Attachment(Findings):
    """Hooks on one model and one optimizer; a context manager.

    The training is not changed: no ``.grad``, parameter, buffer or random number differs. In a step
    that is not looked at nothing runs but a counter behind the optimizer's step.

    Args:
        model: the model that is called in the loop.
        optimizer: moves its parameters.
        every: look at one step in so many.
        what: which parts.
        budget: elements of temporaries.
    """

    def __init__(
        self, model: Module, optimizer: Optimizer, every: int, what: frozenset[Part], budget: int
    ) -> None:
        super().__init__(what)
        parameters = _moved(model, optimizer)
        self._model, self._optimizer, self._every = model, optimizer, every
        self._tap = GradientTap(parameters)
        self._inspection = Inspection(model, parameters, what, budget)
        self._steps = StepWatch(model, parameters, self._tap)
        self._tape: LossTape | None = None
        self._counter: RemovableHandle | None = None
        self._handles: list[RemovableHandle] = []
        self._busy = False
        self._stepping = False
        self._step = 0
        self._calls = 0

    def __enter__(self) -> Attachment:
        self._counter = self._optimizer.register_step_post_hook(self._on_stepped)
        self._arm()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._counter is not None:
            self._counter.remove()
        self._disarm()
        self._tap.stop()
        self._inspection.forget()
        self._steps.forget()
        self._drop_tape()
        self.own_batch, self.next_batch = tuple(self._steps.own), tuple(self._steps.following)
        count_steps(self._step)
        self.close()

    @property
    def steps(self) -> int:
        """Steps of the optimizer so far."""
        return self._step

    # ------------------------------------------------------------------ private
    @property
    def _looking(self) -> bool:
        return self._step % self._every == 0

    @property
    def _probing(self) -> bool:
        return "step" in self.what and (self._looking or self._step in EARLY_STEPS)

    def _arm(self) -> None:
        model, optimizer = self._model, self._optimizer
        self._handles = [
            model.register_forward_pre_hook(self._on_call, with_kwargs=True, prepend=True),
            model.register_forward_hook(self._on_return, with_kwargs=True, always_call=True),
            optimizer.register_step_pre_hook(self._on_step),
        ]

    def _disarm(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @property
    def _ignores_calls(self) -> bool:
        """Whether a call of the model is no forward pass of the step: ours, an evaluation, one that
        a checkpoint makes again in backward, or one of a closure."""
        again = torch._C._current_graph_task_id() != -1
        return self._busy or self._stepping or again or not torch.is_grad_enabled()

    def _on_call(self, module: Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if self._ignores_calls:
            return
        self._calls += 1
        if self._calls > 1:
            self._guarded("step", self._steps.backward_ended)
            return
        if self._probing or self._steps.waits:
            self._guarded("step", lambda: self._steps.called(args, kwargs))
        if self._looking:
            self._guarded("samples", lambda: self._inspection.begin(args, kwargs))

    def _on_return(self, module: Module, args: object, kwargs: object, output: object) -> None:
        if self._ignores_calls or self._calls != 1:
            return
        self._guarded("samples", lambda: self._inspection.end(output))
        if self._tape is None and any(True for _ in outputs_in(output)):
            part: Part = "step" if "step" in self.what else "samples"
            self._guarded(part, lambda: self._tap.start(self._steps.way_back))
            if self._probing or self._steps.waits:
                self._tape = LossTape(output, self._on_backward, _held(self._optimizer))
                self._tape.start()

    def _on_backward(self, loss: Tensor) -> None:
        tape = self._tape
        if tape is not None and self._steps.waits:
            self._guarded("step", lambda: self._steps.backward_starts(tape, loss))

    def _on_step(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        if self._busy:
            return
        self._stepping = True
        if self._tape is not None:
            self._tape.stop()
        self._guarded("step", self._steps.backward_ended)
        self._tap.stop()
        if self._looking:
            squares = self._tap.squares()
            self._guarded("samples", lambda: self._inspection.finish(self, self._step, squares))
        if self._probing:
            self._guarded("step", self._steps.step_starts)

    def _on_stepped(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        if self._busy:
            return
        if self._handles:
            self._finish_step()
        self._step += 1
        self._calls, self._stepping = 0, False
        due = self._looking or self._probing or self._steps.waits
        if due and not self._handles:
            self._arm()
        elif self._handles and not due:
            self._disarm()

    def _finish_step(self) -> None:
        if self._probing:
            alone = self._calls == 1 and self._tap.passes == 1
            tape = self._tape if alone else None
            square = sum(self._tap.squares().values())
            self._guarded("step", lambda: self._steps.step_ends(self._step, tape, square))
        self._drop_tape()

    def _drop_tape(self) -> None:
        if self._tape is not None:
            self._tape.forget()
        self._tape = None

    def _guarded(self, part: Part, work: Callable[[], None]) -> None:
        """Do ``work``; an error of ours ends this part and never the training."""
        if part in self.failed:
            return
        self._busy = True
        try:
            work()
        except Exception as error:
            self.failed[part] = f"{type(error).__name__}: {error}"
            self._inspection.forget()
            self._tap.stop()
        finally:
            self._busy = False


def attach(model: Module, optimizer: Optimizer, **options: Unpack[AttachOptions]) -> Attachment:
    """Look into a training loop, every so many steps, inside the user's own passes.

    Args:
        model: the model that is called in the loop.
        optimizer: moves its parameters.
        **options: see :class:`AttachOptions`.

    Raises:
        UsageError: an argument is of the wrong type, or the optimizer moves nothing of the model.

    Example::

        with nabla.trace.attach(model, optimizer, every=50) as trace:
            train(model, optimizer)
        trace.print()
    """
    if not isinstance(optimizer, Optimizer):
        raise UsageError(f"attach: {type(optimizer).__name__} is no torch optimizer")
    every, budget_mb = options.get("every", 50), options.get("budget_mb", 64.0)
    if every < 1 or not budget_mb > 0:
        raise UsageError(f"attach(every={every}, budget_mb={budget_mb}): both must be above zero")
    parts = options.get("what", get_args(Part))
    what = frozenset([parts] if isinstance(parts, str) else parts)
    unknown = sorted(set(what) - set(get_args(Part)))
    if unknown:
        raise UsageError(f"what={unknown[0]!r}: use any of {', '.join(get_args(Part))}")
    known = frozenset(part for part in get_args(Part) if part in what)
    return Attachment(model, optimizer, every, known, int(budget_mb * 2**20 / 16))


def _moved(model: Module, optimizer: Optimizer) -> Mapping[str, Tensor]:
    held = _held(optimizer)
    found = {name: p for name, p in choose_parameters(model).items() if id(p) in held}
    if not found:
        raise UsageError("attach: the optimizer moves no parameter of the model")
    return found


def _held(optimizer: Optimizer) -> frozenset[int]:
    """Return the identities of what the optimizer moves."""
    return frozenset(id(p) for group in optimizer.param_groups for p in group["params"])
