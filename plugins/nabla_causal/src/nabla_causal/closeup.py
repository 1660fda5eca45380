"""Measures layers that look odd more closely, in single steps: gradients, and ends of ranges."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import Module
from torch.utils.hooks import RemovableHandle

from nabla_guard.loop.signals import can_read, is_ordinary, read
from nabla_guard.loop.watch import EVERY_EVENT, Watch

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from nabla_guard.loop.book import OptimizerRecord
    from nabla_guard.loop.live import LiveLoop

__all__ = ["Closeup"]

_EDGE = 0.99
_MOST_LAYERS = 64

Hear = Callable[[Module, object, object], None]


class Closeup(Watch):
    """Idle until somebody asks; then it measures one step.

    Attributes:
        wants_gradients: measure the gradients of the next step that is looked at.
        gradients: norm of each layer's gradient over that of its weights, as last measured; the
            layers are those with weights of two and more axes, in the order of the optimizer.
        ends: share of the outputs of tanh and sigmoid layers at the ends of their range, likewise.

    Args:
        loop: the loop that is watched.
    """

    patient = EVERY_EVENT

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self.wants_gradients = False
        self.gradients: Mapping[str, float] = {}
        self.ends: dict[str, Tensor] = {}
        self._handles: list[RemovableHandle] = []

    def listen_to(self, layers: Collection[str]) -> None:
        """Measure the outputs of these layers in the next step, if they are tanh or sigmoid.

        The last module of a model is left out: what it answers may be certain.
        """
        self._silence()
        self.ends = {}
        for root in self.loop.roots.living:
            for name, module in [*root.named_modules()][:-1]:
                bounded = isinstance(module, (nn.Tanh, nn.Sigmoid))
                if bounded and name in layers and len(self._handles) < _MOST_LAYERS:
                    self._handles.append(module.register_forward_hook(self._hear(name)))

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`~nabla_guard.loop.watch.Watch`."""
        self._silence()
        if not self.wants_gradients or record.facts.closure:
            return
        self.wants_gradients = False
        with torch.no_grad():
            self.gradients = _relative_gradients(record)

    def stop(self) -> None:
        """See :class:`~nabla_guard.loop.watch.Watch`."""
        self._silence()

    # ------------------------------------------------------------------ private
    def _silence(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _hear(self, name: str) -> Hear:
        def hear(module: Module, inputs: object, output: object) -> None:
            if torch.is_grad_enabled() and isinstance(output, Tensor) and is_ordinary(output):
                self.guarded(lambda: self._keep(name, module, output))

        return hear

    def _keep(self, name: str, module: Module, output: Tensor) -> None:
        if not output.numel() or not output.is_floating_point() or not can_read(output):
            return
        with torch.no_grad():
            values = output.detach()
            if isinstance(module, nn.Sigmoid):
                values = 2.0 * values - 1.0
            self.ends[name] = (values.abs() > _EDGE).float().mean()


def _relative_gradients(record: OptimizerRecord) -> dict[str, float]:
    names, tensors = [], []
    for held in record.records:
        parameter = held.ref()
        gradient = None if parameter is None else parameter.grad
        if parameter is None or gradient is None or parameter.dim() < 2 or not held.facts.name:
            continue
        if is_ordinary(gradient) and is_ordinary(parameter) and can_read(gradient):
            names.append(held.facts.owner)
            tensors += [gradient, parameter.detach()]
    values = iter(read([torch.linalg.vector_norm(tensor.float()) for tensor in tensors]))
    found: dict[str, float] = {}
    for name, gradient_norm, weight_norm in zip(names, values, values, strict=True):
        if weight_norm > 0.0 and name not in found:
            found[name] = gradient_norm / weight_norm
    return found
