"""One operator under examination: the baseline call that every battery compares with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from nabla_core.issue import Evidence, Issue, Location, Phase
from nabla_core.rule import Rule
from nabla_core.severity import Severity

from .inputs.evaluation import Cotangents, Evaluator, Gradients, Outputs
from .inputs.operands import Operands, Values
from .options import OperatorOptions
from .rules import INCONCLUSIVE
from .truth.products import normals_like, size_of
from .truth.resolution import Resolution
from .wording.compare import largest

__all__ = ["Baseline", "Battery", "Examination"]

Battery = Callable[["Examination"], Iterator[Issue]]
"""A test that yields what is wrong. It may raise ``OperatorRaised``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A call and its gradient, with copies that show later writes.

    Attributes:
        operands: what the operator was called with.
        values: differentiable operands of the call.
        outputs: what it returned.
        cotangents: one per differentiable output.
        gradients: of the operands under these cotangents, as delivered.
        output_copies: copies of the differentiable outputs.
        gradient_copies: copies of the gradients.
    """

    operands: Operands
    values: Values
    outputs: Outputs
    cotangents: Cotangents
    gradients: Gradients
    output_copies: tuple[torch.Tensor, ...]
    gradient_copies: Gradients


@dataclass(slots=True, kw_only=True)
class Examination:
    """State shared by the batteries.

    Attributes:
        candidate: the operator under test.
        reference: the operator that defines the truth, if any.
        given: operands as handed over.
        operands: the same in the precision in which formulas are judged.
        resolution: of the numerical oracle in that precision, ``None`` when it has none.
        options: what to check.
        generator: source of all random numbers.
        seed: its seed.
        deadline_s: ``time.monotonic()`` after which no battery starts.
        base: the baseline, once it exists.
        own_derivatives: some derivative in the graph is not one of torch's own formulas.
        single_use: a graph survives only one backward.
        drawn_forward: global generators that the first forward moved.
        drawn_backward: global generators that the first backward moved.
        issues: verdicts and notes so far.
        checks: names of the batteries that were decided.
        skipped: rule ID to reason.
    """

    candidate: Evaluator
    reference: Evaluator | None
    given: Operands
    operands: Operands
    resolution: Resolution | None
    options: OperatorOptions
    generator: torch.Generator
    seed: int
    deadline_s: float | None = None
    base: Baseline | None = None
    own_derivatives: bool = True
    single_use: bool = False
    drawn_forward: tuple[str, ...] = ()
    drawn_backward: tuple[str, ...] = ()
    issues: list[Issue] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def baseline(self) -> Baseline:
        """The baseline.

        Raises:
            RuntimeError: the baseline call has not been made; a battery ran too early.
        """
        if self.base is None:
            raise RuntimeError("the baseline call has not been made yet")
        return self.base

    @property
    def tolerance(self) -> float:
        """Relative tolerance of comparisons between two ways to the same formula."""
        return self.resolution.tolerance if self.resolution is not None else 2e-2

    @property
    def noise(self) -> float:
        """Relative error of single numerical elements, for naming patterns."""
        return max(1e-6, 10 * self.tolerance)

    @property
    def unit(self) -> float:
        """Unit roundoff spacing of the precision in which formulas are judged."""
        return self.resolution.unit if self.resolution is not None else 2.0**-8

    @property
    def out_of_time(self) -> bool:
        """Whether the budget is spent."""
        return self.deadline_s is not None and time.monotonic() > self.deadline_s

    @property
    def broken(self) -> bool:
        """Whether a fault was found that makes further comparisons of the gradient pointless."""
        return any(issue.severity >= Severity.LOW for issue in self.issues)

    @property
    def given_dtype(self) -> torch.dtype | None:
        """Real dtype of the first differentiable operand as handed over."""
        for index in self.given.live:
            leaf = self.given.tree.leaves[index]
            if isinstance(leaf, torch.Tensor):
                return (
                    torch.zeros(0, dtype=leaf.dtype).real.dtype if leaf.is_complex() else leaf.dtype
                )
        return None

    def is_negligible(self, gradients: Gradients, point: Baseline | None = None) -> bool:
        """Whether gradients are nothing but rounding: far below what cotangents of their size give.

        Exact zeros count too. Tests of relative errors mean nothing there. ``point`` is where the
        gradients were taken, the baseline by default.
        """
        where = point or self.baseline
        weight = max((largest(u) for u in where.cotangents), default=0.0)
        return all(
            g is None or largest(g) * size_of(x.detach()) <= 2.0**-40 * weight
            for g, x in zip(gradients, where.values, strict=True)
        )

    def keep_operands(self, positions: Sequence[int]) -> None:
        """Differentiate only the operands at ``positions`` from now on."""
        base = self.baseline
        self.operands = self.operands.only([self.operands.live[i] for i in positions])
        self.candidate.operands = self.operands
        if self.reference is not None:
            self.reference.operands = self.operands
        self.base = replace(
            base,
            operands=self.operands,
            values=tuple(base.values[i] for i in positions),
            gradients=tuple(base.gradients[i] for i in positions),
            gradient_copies=tuple(base.gradient_copies[i] for i in positions),
        )

    def graph(self) -> tuple[Values, Outputs]:
        """Return operands and outputs whose graph can be pulled through."""
        if not self.single_use:
            return self.baseline.values, self.baseline.outputs
        values = self.operands.values()
        return values, self.candidate.forward(values, stage="forward for another backward")

    def draw(self, outputs: Sequence[torch.Tensor]) -> Cotangents:
        """Draw cotangents for these outputs, of the kind that the user chose."""
        if self.options.vjp_cotangent == "ones":
            return tuple(torch.ones_like(output) for output in outputs)
        return normals_like(outputs, self.generator)

    def failed(self, *rules: Rule) -> bool:
        """Whether one of ``rules`` was reported."""
        ids = {rule.id for rule in rules}
        return any(issue.rule in ids for issue in self.issues)

    def verdict(
        self,
        rule: Rule,
        message: str,
        *,
        operand: str | None = None,
        phase: Phase = "backward",
        severity: Severity | None = None,
        setting: str = "",
        **evidence: Evidence,
    ) -> Issue:
        """Make an issue of ``rule`` about this operator, seen in the given ``setting``."""
        place = Location(op=self.candidate.callee.name, parameter=operand)
        found = rule.issue(message, where=place, phase=phase, severity=severity)
        needed: dict[str, Evidence] = {"setting": setting} if setting else {}
        return replace(found, evidence={**evidence, **needed, "seed": self.seed})

    def note(self, what: str, reason: str, *, phase: Phase = "backward") -> Issue:
        """Say what could not be decided, and why."""
        where = Location(op=self.candidate.callee.name, parameter=what)
        return INCONCLUSIVE.issue(f"{what} not decided: {reason}.", where=where, phase=phase)

    def skip(self, rule: Rule, reason: str) -> None:
        """Remember that ``rule`` was not evaluated."""
        self.skipped.setdefault(rule.id, reason)
