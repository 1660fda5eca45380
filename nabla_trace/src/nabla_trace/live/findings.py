"""What an attachment has found so far, and what it says about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torch import Tensor

from nabla_core.issue import Issue
from nabla_core.numbers import json_number
from nabla_core.report import Section
from nabla_core.result import ResultMixin
from nabla_core.rule import Rule
from nabla_core.severity import Severity

from ..delivery import deliver, trace_options
from ..gram_facts import GramFacts
from ..noise import NoiseEstimator, NoiseScale, noise_issues
from ..rules import noise as noise_rules
from ..rules import samples as sample_rules
from ..rules import signal as signal_rules
from ..rules import step_size as step_rules
from ..sample_verdicts import norm_issues
from ..signal_verdicts import signal_issues
from ..step_probes import NextBatchProbe, OwnBatchProbe, alpha_of_means
from ..step_verdicts import step_issues
from .ladder import Rung

__all__ = ["Findings"]

_RULES: dict[str, tuple[Rule, ...]] = {
    "samples": sample_rules.RULES,
    "step": step_rules.RULES,
    "noise": noise_rules.RULES,
    "signal": signal_rules.RULES,
}


class Findings(ResultMixin):
    """Numbers of a traced loop.

    Attributes:
        what: parts that were asked for.
        own_batch: probes of steps on their own batch.
        next_batch: probes of steps on the batch after them.
        signal: layers at the latest look.
        gram: inner products of the samples at the latest look, each as the gradient of its own
            loss if the loss is a mean.
        looks: steps at which samples were looked at.
        failed: part → why it ended.
        skipped: step → why there are no samples of it.
        issues: the verdicts; complete after the block.
    """

    fail_on = Severity.HIGH

    def __init__(self, what: frozenset[str]) -> None:
        self.what = what
        self.issues: tuple[Issue, ...] = ()
        self.own_batch: tuple[OwnBatchProbe, ...] = ()
        self.next_batch: tuple[NextBatchProbe, ...] = ()
        self.signal: tuple[Rung, ...] = ()
        self.gram: Tensor | None = None
        self.looks: list[int] = []
        self.failed: dict[str, str] = {}
        self.skipped: dict[int, str] = {}
        self._noise = NoiseEstimator()
        self._found: list[Issue] = []
        self._options = trace_options()

    @property
    def noise(self) -> NoiseScale | None:
        """The gradient noise scale so far."""
        return self._noise.scale()

    @property
    def alpha(self) -> float:
        """Alpha of the steps on the batches after them; see :mod:`nabla_trace.step_probes`."""
        return alpha_of_means(self.next_batch)

    def note_signal(self, rungs: Sequence[Rung], step: int) -> None:
        """Take the layers of a step in."""
        self.signal = tuple(rungs)
        self._keep(signal_issues(rungs, step, self._options), None)

    def note_samples(self, gram: Tensor | None, problem: str, step: int) -> None:
        """Take the samples of a step in."""
        if gram is None:
            self.skipped[step] = problem
            return
        self.looks.append(step)
        self.gram = gram * len(gram) ** 2
        if "noise" in self.what:
            self._noise.add(self.gram)
        if "samples" in self.what:
            lengths = GramFacts(self.gram).lengths
            self._keep(norm_issues(lengths, self._options), step)

    def close(self) -> None:
        """Judge what needs the whole loop."""
        found = list(self._found)
        if "step" in self.what:
            found += step_issues(self.own_batch, self.next_batch, self._options)
        if "noise" in self.what:
            found += noise_issues(self.noise)
        self.issues = deliver(found, [rule for part in self.what for rule in _RULES[part]])

    @property
    def rules_used(self) -> tuple[str, ...]:
        """IDs of the rules that judged it."""
        return tuple(rule.id for part in sorted(self.what) for rule in _RULES[part])

    def sections(self) -> tuple[Section, ...]:
        """Return what a report shows of it: alpha over steps, the signal along the layers."""
        from ..views.loop_views import findings_lines
        from ..views.plots import loop_plots

        lines = tuple(findings_lines(self))
        return (Section(title="Gradients", lines=lines, plots=tuple(loop_plots(self))),)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        noise = self.noise
        return {
            "passed": self.passed,
            "looks": self.looks,
            "skipped": {str(step): why for step, why in self.skipped.items()},
            "failed": dict(self.failed),
            "alpha": json_number(self.alpha),
            "noise_scale": None
            if noise is None
            else [json_number(value) for value in (noise.low, noise.value, noise.high)],
            "issues": [issue.to_dict() for issue in self.issues],
        }

    def format(self) -> str:
        """Return the alpha strip, the noise scale, the signal ladder and the verdicts as text."""
        from ..views.loop_views import findings_lines

        return "\n".join([*findings_lines(self), "", ResultMixin.format(self)])

    # ------------------------------------------------------------------ private
    def _keep(self, issues: Iterable[Issue], step: int | None) -> None:
        known = {issue.fingerprint for issue in self._found}
        for issue in issues:
            if issue.fingerprint not in known:
                again = issue if step is None else replace(issue, step=step, last_step=step)
                self._found.append(again)
