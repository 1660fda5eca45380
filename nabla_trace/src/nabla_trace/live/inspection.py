"""One inspected step: per-sample gradients and the signal, in the user's own passes."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn import Module

from ..ghost.bank import BankOptions
from ..ghost.forward_pass import Subject
from .findings import Findings
from .inline_samples import InlineSamples
from .ladder import SignalLadder

__all__ = ["Inspection"]


class Inspection:
    """Taps on a model, put in before a call and taken out after it.

    Args:
        model: the model.
        parameters: those that are trained.
        what: parts that are wanted.
        budget: elements of temporaries.
    """

    def __init__(
        self, model: Module, parameters: Mapping[str, Tensor], what: frozenset[str], budget: int
    ) -> None:
        self._samples = None
        if what & {"samples", "noise"}:
            subject = Subject(model=model, parameters=parameters)
            self._samples = InlineSamples(subject, BankOptions(budget=budget))
        self._ladder = SignalLadder(model) if "signal" in what else None

    def begin(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """The model is about to be called."""
        if self._samples is not None:
            self._samples.begin(args, kwargs)
        if self._ladder is not None:
            self._ladder.begin()

    def end(self, output: object) -> None:
        """The model has returned ``output``."""
        if self._ladder is not None:
            self._ladder.end()
        if self._samples is not None:
            self._samples.end(output)

    def finish(self, findings: Findings, step: int, squares: Mapping[str, float]) -> None:
        """The step is about to be made: tell what was found.

        Args:
            findings: what is told.
            step: which step.
            squares: name → squared norm of the gradient, as backward gave it.
        """
        if self._ladder is not None:
            rungs = self._ladder.rungs()
            if rungs:
                findings.note_signal(rungs, step)
        if self._samples is not None:
            gram = self._samples.finish(squares)
            findings.note_samples(gram, self._samples.problem, step)

    def forget(self) -> None:
        """Let go of every tensor and hook."""
        if self._ladder is not None:
            self._ladder.end()
        if self._samples is not None:
            self._samples.forget()
