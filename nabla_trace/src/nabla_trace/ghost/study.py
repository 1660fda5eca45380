"""The per-sample gradients of a batch: learn the structure, run, check, repair."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..batches import Batch, LossFunction
from ..untouched import Start, couples_samples, draws_noise, untouched
from .bank import Bank, BankOptions
from .forward_pass import Subject, module_units
from .function_watch import FunctionWatch
from .half_pass import half_of, others_reached, seeds_at_losses, seeds_at_outputs
from .layout import StructureDiffers
from .loops import Reduction, loop_rows, per_sample_losses
from .memory import lesson_key, recall, remember
from .receivers import Accumulator
from .reductions import Composition, find_composition
from .small_run import SmallRun, run_small
from .squares import squares_by_autograd
from .tolerance import agrees, autocast_dtype, tolerance_of

__all__ = ["FEWEST", "Study", "StudyResult"]

FEWEST = 3
"""Below this batch size the samples are run one after the other: there is nothing to save."""

_LOOP_LIMIT = 400_000_000
"""Elements that the rows of parameters without a rule may have."""


@dataclass(slots=True, kw_only=True)
class StudyResult:
    """Inner products of per-sample gradients and how they were obtained.

    Attributes:
        samples: batch size ``N``.
        total: Gram ``[N, N]`` or squared norms ``[N]``, float64; ``None`` if nothing is covered.
        layers: the same for each parameter, if wanted.
        coverage: name of each parameter → how its rows were found.
        missing: name → why it is not part of ``total``.
        repaired: name → what was wrong with the rule, for those that the loop replaced.
        coupled: modules that normalise over the batch.
        noisy: modules that draw random numbers.
        reduction: of the loss.
        composition: of a loss that is one number.
        losses: loss of each sample ``[N]``, if the loss says.
        batch_square: squared norm of the sum of all per-sample gradients, by autograd.
    """

    samples: int
    total: Tensor | None = None
    layers: dict[str, Tensor] = field(default_factory=dict)
    coverage: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    repaired: dict[str, str] = field(default_factory=dict)
    coupled: list[str] = field(default_factory=list)
    noisy: list[str] = field(default_factory=list)
    reduction: Reduction = "none"
    composition: Composition | None = None
    losses: Tensor | None = None
    batch_square: float = 0.0


class Study:
    """One batch of one model.

    Args:
        subject: model and parameters.
        batch: the batch.
        loss_fn: loss per sample, or its mean or sum.
        options: what to sum.
    """

    def __init__(
        self,
        subject: Subject,
        batch: Batch,
        loss_fn: LossFunction | None,
        options: BankOptions,
    ) -> None:
        self._subject, self._batch, self._loss_fn = subject, batch, loss_fn
        self._options = options
        self._result = StudyResult(samples=batch.samples)

    def run(self, *, by_loop: bool = False) -> StudyResult:
        """Return the result; model, gradients and random generators are left as they were.

        Args:
            by_loop: whether to use no rule at all.
        """
        modules = self._subject.modules
        with untouched(modules) as start:
            self._result.coupled = couples_samples(modules)
            self._result.noisy = draws_noise(modules)
            everything = dict.fromkeys(self._subject.parameters, "asked for")
            if by_loop or self._batch.samples < FEWEST:
                self._loop(everything)
            else:
                key = lesson_key(self._subject, modules, self._batch, self._loss_fn)
                broken = self._by_rules(everything, key, start)
                if broken:
                    start.again()
                    self._result.repaired = broken
                    self._loop(broken)
        return self._result

    # ------------------------------------------------------------------ private
    def _by_rules(
        self, everything: Mapping[str, str], key: Hashable, start: Start
    ) -> dict[str, str]:
        """Run the whole batch; return the parameters whose rows cannot be had from rules."""
        lesson = recall(self._subject.model, key)
        if lesson is not None:
            small, broken = lesson
            found = broken | self._whole(small, frozenset(broken), learnt=True)
            if self._result.total is not None:
                return found
            start.again()
        try:
            small = run_small(self._subject, self._batch, self._loss_fn)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
            reason = f"two samples alone do not run: {type(error).__name__}: {error}"
            return dict.fromkeys(everything, reason)
        start.again()
        try:
            broken = self._whole(small, frozenset())
            for _ in range(2):  # what fails only with the whole batch is left out and run again
                if self._result.total is not None or len(broken) == len(everything):
                    break
                start.again()
                broken = broken | self._whole(small, frozenset(broken), learnt=True)
        finally:
            small.forget()
        if self._result.coverage and math.isfinite(self._result.batch_square):
            remember(self._subject.model, key, (small, broken))
        return broken

    def _whole(
        self, small: SmallRun, skipped: frozenset[str], *, learnt: bool = False
    ) -> dict[str, str]:
        subject, batch = self._subject, self._batch
        receiver = Accumulator(small.calls)
        watch = FunctionWatch(subject.parameters, batch.tensors(), batch.samples, receiver)
        try:
            with module_units(subject, watch), watch.watching():
                output = subject.model(*batch.args, **batch.kwargs)
                loss = batch.loss(output, self._loss_fn)
            if receiver.structure or receiver.serial != len(small.calls):
                reason = receiver.structure or "the model ran other operations with fewer samples"
                return dict.fromkeys(subject.parameters, reason)
            broken = {}
            if not learnt:
                broken = small.check(subject, self._options.budget)
                broken |= self._reached(small, (watch, receiver), (output, loss), broken)
            small.forget()
            bank = Bank(subject.names, watch.uses, batch.samples, self._options)
            bank.skipped = frozenset((*skipped, *broken))
            receiver.bank = bank
            squares = self._backward(loss, output, lambda: watch.busy)
            bank.flush()
            problems = {subject.names[root]: why for root, why in receiver.problems.items()}
        finally:
            watch.forget()
        found = {**self._compare(bank, squares), **problems}
        worse = {name: why for name, why in found.items() if name not in bank.skipped}
        if worse:
            return broken | worse
        self._take(bank, receiver)
        return broken

    def _reached(
        self,
        small: SmallRun,
        pass_: tuple[FunctionWatch, Accumulator],
        values: tuple[object, Tensor],
        broken: Mapping[str, str],
    ) -> dict[str, str]:
        """Return the parameters at which the gradient of some samples is in the rows of others."""
        if self._result.coupled:
            return {}  # that is said
        (watch, receiver), (output, loss) = pass_, values
        losses, chosen = per_sample_losses(loss, watch.samples), half_of(watch.samples)
        if losses is not None:
            seeds = seeds_at_losses(losses, chosen)
        else:
            seeds = seeds_at_outputs(output, chosen, small.shapes, small.samples)
        if not any(value.requires_grad for value in seeds[0]):
            return {}
        settings = frozenset(broken), self._options.budget
        return others_reached(self._subject, watch, receiver, seeds, settings)

    def _backward(
        self, loss: Tensor, output: object, inner: Callable[[], bool]
    ) -> dict[str, float]:
        """Return the squared norm of the sum of all per-sample gradients, by autograd."""
        result = self._result
        losses = per_sample_losses(loss, result.samples)
        result.losses = None if losses is None else losses.detach()
        whole = loss.sum()
        if losses is None:
            found = find_composition(self._batch, output, self._loss_fn, loss)
            result.reduction, result.composition = found.reduction, found
            whole = whole if found.reduction == "sum" else whole * result.samples
        squares = squares_by_autograd([whole], None, self._subject.parameters, inner=inner)
        result.batch_square = sum(squares.values())
        return squares

    def _compare(self, bank: Bank, squares: Mapping[str, float]) -> dict[str, str]:
        """Hold the sum of the Gram against the gradient of the batch, for each parameter."""
        wrong = {}
        whole = self._result.batch_square
        if not math.isfinite(whole):
            return {}  # the result says it
        checks = bank.checks()
        for name, truth in squares.items():
            total, trace = checks.get(name, (0.0, 0.0))
            if total is None:
                continue  # only the small run could check it
            limit = tolerance_of(self._subject.parameters[name].dtype, autocast_dtype())
            if not agrees(total, truth, scale=trace + truth, whole=whole + trace, limit=limit):
                wrong[name] = f"sum of the Gram {total:.6g}, squared norm by autograd {truth:.6g}"
        return wrong

    def _take(self, bank: Bank, receiver: Accumulator) -> None:
        result = self._result
        if len(bank.skipped) < len(self._subject.parameters):
            shape = (result.samples,) * (1 if self._options.measure == "norms" else 2)
            total = bank.total
            result.total = torch.zeros(shape, dtype=torch.float64) if total is None else total
        result.layers = dict(bank.layers)
        for name in self._subject.parameters:
            if name not in bank.skipped:
                result.coverage[name] = receiver.rules.get(name, "no gradient")

    def _alone(self) -> str:
        """Return why a sample cannot be run alone, or nothing."""
        depends = (self._result.coupled + self._result.noisy)[:1]
        return f"alone, a sample has another gradient at {depends[0]}" if depends else ""

    def _loop(self, wanted: Mapping[str, str]) -> None:
        result = self._result
        chosen = {name: self._subject.parameters[name] for name in wanted}
        size = result.samples * sum(parameter.numel() for parameter in chosen.values())
        if size > _LOOP_LIMIT:
            result.missing = {
                name: f"{why}; the loop would need {size:.1e} elements"
                for name, why in wanted.items()
            }
            result.repaired = {}
            return
        try:
            found = loop_rows(self._subject, chosen, self._batch, self._loss_fn, self._alone())
        except StructureDiffers as error:
            result.missing = {name: f"{why}; {error}" for name, why in wanted.items()}
            result.repaired = {}
            return
        result.missing = {name: f"{wanted[name]}; {why}" for name, why in found.wrong.items()}
        result.repaired = {n: why for n, why in result.repaired.items() if n not in found.wrong}
        if result.total is None:  # no rule has told it
            result.losses, result.reduction = found.losses, found.reduction
        self._take_rows({n: row for n, row in found.rows.items() if n not in found.wrong})

    def _take_rows(self, rows: Mapping[str, Tensor]) -> None:
        result = self._result
        square = 0.0
        for name, block in rows.items():
            wide = block.double() if block.device.type != "mps" else block
            pairs = self._options.measure != "norms"
            part = wide @ wide.T if pairs else wide.square().sum(1)
            result.total = part.clone() if result.total is None else result.total + part
            result.coverage[name] = "loop"
            square += float(wide.sum(0).square().sum())
            if self._options.every_layer:
                result.layers[name] = part
        if not result.batch_square:
            result.batch_square = square
