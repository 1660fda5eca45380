"""The step that a live loop is closing, as a contract sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nabla_guard.loop.live import LiveLoop
from nabla_guard.taps.scaler import was_skipped

from .view import InputAbsent, Range

if TYPE_CHECKING:
    from nabla_guard.loop.book import OptimizerRecord

__all__ = ["LiveFacts", "named_parameters"]

_SCALING = frozenset({"grad_scale", "found_inf"})
"""What a gradient scaler gives to a fused optimizer for the time of a step."""


def named_parameters(record: OptimizerRecord) -> dict[str, Tensor]:
    """Return the living parameters of an optimizer by name, each under a name of its own."""
    named: dict[str, Tensor] = {}
    for index, found in enumerate(record.records):
        parameter = found.ref()
        if parameter is None:
            continue
        name = found.facts.name or f"{record.facts.name} parameter {index}"
        if name in named:  # two models, or a tensor that no module holds
            root = "" if found.facts.root is None else f"{found.facts.root.name}."
            name = f"{root}{name}" if f"{root}{name}" not in named else f"{name} ({index})"
        named[name] = parameter
    return named


class LiveFacts:
    """Implements :class:`.view.StepFacts` over a loop.

    Args:
        loop: the loop that is watched.
    """

    def __init__(self, loop: LiveLoop) -> None:
        self.loop = loop
        self._record: OptimizerRecord | None = None
        self._updates: Mapping[str, Tensor] | None = None

    @property
    def stepping(self) -> object:
        """What the steps of one optimizer have in common."""
        return self.loop.stepping if self._record is None else self._record.facts

    def boundary(self, signals: Mapping[str, float]) -> Mapping[str, float] | None:
        """Return the signals of a step before loss scaling.

        Returns:
            ``None`` when a fused optimizer is not going to make this step.
        """
        optimizer = self._optimizer()
        if optimizer is None or not _SCALING & vars(optimizer).keys():
            return signals
        return None if was_skipped(optimizer) else self.unscaled(signals)

    def after(self, record: OptimizerRecord, updates: Mapping[str, Tensor]) -> None:
        """Show a step that is over; see :meth:`forget`."""
        self._record, self._updates = record, updates

    def forget(self) -> None:
        """Let go of the tensors of a step that is over."""
        self._record = self._updates = None

    def unscaled(self, signals: Mapping[str, float]) -> Mapping[str, float]:
        """Return the signals of a step with the norm of the gradients before loss scaling."""
        scale = self._scale()
        if scale == 1.0 or "grad_norm" not in signals:
            return signals
        return {**signals, "grad_norm": signals["grad_norm"] / scale}

    def gradients(self) -> Mapping[str, Tensor]:
        """See :class:`.view.StepFacts`."""
        named, scale = self._named(), self._scale()
        grads = {name: p.grad.detach() for name, p in named.items() if p.grad is not None}
        if not grads:
            raise InputAbsent("no gradient was seen in this step")
        return grads if scale == 1.0 else {name: grad / scale for name, grad in grads.items()}

    def parameters(self) -> Mapping[str, Tensor]:
        """See :class:`.view.StepFacts`."""
        return {name: parameter.detach() for name, parameter in self._named().items()}

    def updates(self) -> Mapping[str, Tensor]:
        """See :class:`.view.StepFacts`."""
        if self._updates is None:
            raise InputAbsent('updates are measured where needs=("updates",) asks for them')
        return self._updates

    def activations(self) -> Mapping[str, Range]:
        """See :class:`.view.StepFacts`."""
        layers = self.loop.layers
        if not layers.measures:
            raise InputAbsent("outputs of modules are measured in mode standard or deep only")
        ranges = layers.ranges
        if not ranges:
            raise InputAbsent("no output of a module was measured in this step")
        rows = zip(layers.layout, ranges["out_min"], ranges["out_max"], strict=True)
        return {
            path: Range(low=low, high=high)
            for path, low, high in rows
            if not low > high  # the empty range: it did not run
        }

    # ------------------------------------------------------------------ private
    def _named(self) -> dict[str, Tensor]:
        record = self._known()
        if record is None:
            raise InputAbsent("no optimizer is stepping")
        return named_parameters(record)

    def _known(self) -> OptimizerRecord | None:
        if self._record is not None:
            return self._record
        closing = self.loop.pending.record
        if closing is not None or self.loop.stepping is None:
            return closing
        return self.loop.book.of(self.loop.stepping)  # a step with a closure is over

    def _optimizer(self) -> object:
        record = self._known()
        return None if record is None else record.ref()

    def _scale(self) -> float:
        """The loss scale that a fused optimizer is going to take out of its gradients."""
        scale = getattr(self._optimizer(), "grad_scale", None)
        return float(scale) if isinstance(scale, torch.Tensor) else 1.0
