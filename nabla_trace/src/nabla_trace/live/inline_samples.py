"""Per-sample gradients inside the user's own forward and backward."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from contextlib import ExitStack

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ..batches import Batch, outputs_in
from ..ghost.bank import Bank, BankOptions
from ..ghost.forward_pass import Subject, module_units
from ..ghost.function_watch import FunctionWatch
from ..ghost.layout import StructureDiffers, find_layout
from ..ghost.receivers import Accumulator
from ..ghost.small_run import SmallRun, run_small_model
from ..ghost.study import FEWEST
from ..ghost.tolerance import agrees, autocast_dtype, tolerance_of
from ..untouched import untouched

__all__ = ["InlineSamples"]


class InlineSamples:
    """Fills one Gram matrix while the user trains; nothing of the training changes.

    Args:
        subject: model and parameters.
        options: what to sum.

    Attributes:
        problem: why there is no Gram, if so.
    """

    def __init__(self, subject: Subject, options: BankOptions) -> None:
        self.problem = ""
        self._axis, self._axes = 0, [0, 1]
        self._subject, self._options = subject, options
        self._lessons: dict[Hashable, tuple[SmallRun, dict[str, str]]] = {}
        self._stack = ExitStack()
        self._watch: FunctionWatch | None = None
        self._bank: Bank | None = None
        self._receiver: Accumulator | None = None
        self._cast: torch.dtype | None = None
        self._lesson: tuple[SmallRun, dict[str, str]] | None = None

    def begin(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """The model is about to be called."""
        self.problem, self._cast = "", autocast_dtype()
        first = next((t for t in outputs_in((args, kwargs)) if t.dim() > self._axis), None)
        if first is None or first.shape[self._axis] < FEWEST:
            self.problem = f"the batch has fewer than {FEWEST} samples"
            return
        batch = Batch(args=args, kwargs=kwargs, samples=first.shape[self._axis])
        try:
            self._lesson = self._learn(batch)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
            self.problem = f"a part of the batch does not run: {type(error).__name__}: {error}"
            self._take_other_axis()
            return
        self._receiver = Accumulator(self._lesson[0].calls)
        self._watch = FunctionWatch(
            self._subject.parameters, batch.tensors(), batch.samples, self._receiver
        )
        self._stack.enter_context(module_units(self._subject, self._watch))
        self._stack.enter_context(self._watch.watching())

    def end(self, output: object) -> None:
        """The model has returned ``output``, or raised: then it is ``None``."""
        self._stack.close()
        watch, receiver, lesson = self._watch, self._receiver, self._lesson
        if watch is None or receiver is None or lesson is None:
            return
        small, broken = lesson
        if not _grows(small, output, watch.samples):
            self.problem = f"no output of the model grows with axis {self._axis} of the batch"
            self._take_other_axis()
        elif small.touches:
            self.problem = "the output of one sample depends on the input of another"
        elif receiver.structure or receiver.serial != len(small.calls):
            self.problem = (
                receiver.structure or "the model ran other operations than for two samples"
            )
        elif small.watch.calls and not broken:
            broken.update(self._checked(small))
        if broken and not self.problem:
            name, why = next(iter(broken.items()))
            self.problem = f"{name}: {why}"
        if self.problem:
            return self.forget()
        self._axes = []
        self._bank = Bank(self._subject.names, watch.uses, watch.samples, self._options)
        receiver.bank = self._bank

    def finish(self, squares: Mapping[str, float]) -> Tensor | None:
        """The backward pass is over: return the checked Gram ``[N, N]`` of the loss's parts.

        Row ``i`` is of the part of the gradient that goes through sample ``i``: for a mean loss the
        gradient of the sample's own loss divided by ``N``.

        Args:
            squares: name → squared norm of the gradient, as backward gave it.
        """
        bank, receiver = self._bank, self._receiver
        if bank is not None:
            bank.flush()
        if bank is None or receiver is None or bank.total is None:
            self.problem = self.problem or "no gradient reached the model"
            self.forget()
            return None
        wrong = self._compare(bank, squares)
        if receiver.problems:
            wrong = next(iter(receiver.problems.values()))
        total = bank.total
        self.forget()
        self.problem = wrong
        return None if wrong else total

    def forget(self) -> None:
        """Let go of every tensor and hook."""
        self._stack.close()
        if self._watch is not None:
            self._watch.forget()
        self._watch, self._receiver, self._bank = None, None, None

    # ------------------------------------------------------------------ private
    def _take_other_axis(self) -> None:
        """The samples cannot lie here: the next look tries the other axis, each of them once."""
        if self._axes:
            self._axis = self._axes.pop()
            self.problem += f"; the next look takes axis {self._axis} for the samples"

    def _learn(self, batch: Batch) -> tuple[SmallRun, dict[str, str]]:
        model = self._subject.model
        key = (
            batch.samples,
            tuple((tuple(tensor.shape), tensor.dtype) for tensor in batch.tensors()),
            tuple(module.training for module in model.modules()),
        )
        if key not in self._lessons:
            if len(self._lessons) > 8:
                self._lessons.clear()
            # the model may be called inside a checkpoint, which counts what is saved for backward
            with untouched(self._subject.modules), saved_tensors_hooks(_same, _same):
                self._lessons[key] = (run_small_model(self._subject, batch), {})
        return self._lessons[key]

    def _checked(self, small: SmallRun) -> dict[str, str]:
        if not small.squares:
            return {}
        with torch.no_grad(), untouched(self._subject.modules), torch.no_grad():
            found = small.check(self._subject, self._options.budget)
        small.squares = {}
        small.forget()
        return found

    def _compare(self, bank: Bank, squares: Mapping[str, float]) -> str:
        whole = sum(squares.values())
        if not math.isfinite(whole):
            return "the gradient of this step is not finite"
        checks = bank.checks()
        for name in {**squares, **checks}:
            total, trace = checks.get(name, (0.0, 0.0))
            if total is None:
                continue
            truth = squares.get(name, 0.0)
            limit = tolerance_of(self._subject.parameters[name].dtype, self._cast)
            if not agrees(total, truth, scale=trace + truth, whole=whole + trace, limit=limit):
                return (
                    f"{name} gets gradient from outside this call of the model: sum of the Gram "
                    f"{total:.4g}, squared norm {truth:.4g}"
                )
        return ""


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _grows(small: SmallRun, output: object, samples: int) -> bool:
    """Whether any output has an axis of the samples; a single number says nothing."""
    pairs = list(zip(small.shapes, outputs_in(output), strict=False))
    try:
        layouts = [find_layout(few, small.samples, many.shape, samples) for few, many in pairs]
    except StructureDiffers:
        return False
    sized = [layout for layout, (few, _) in zip(layouts, pairs, strict=True) if few]
    return not sized or any(layout is not None for layout in sized)
