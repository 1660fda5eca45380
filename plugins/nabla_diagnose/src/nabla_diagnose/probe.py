"""Measures layers of a live loop now and then: norms, update ratios and activations.

Every step of the first hundred is measured for its update ratio, later one in ``every``; layers are
measured in one of ten, later in one of ``every``. Nothing is measured under a compiled module's
forward, because a hook would make it compile again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from nabla_guard.loop.book import OptimizerRecord
from nabla_guard.loop.live import LiveLoop
from nabla_guard.loop.signals import is_ordinary, norms, read, total_norm
from nabla_guard.loop.watch import Watch

__all__ = ["LayerProbe", "Measurement"]

_EARLY_STEPS = 100
_LAYER_STEPS = 10
_ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Dropout)
_EDGE = 0.99


@dataclass(slots=True)
class Measurement:
    """What was measured of one step.

    Attributes:
        update_ratio: norm of the last step's change over the norm of the parameters.
        columns: measurement to layer to value, in the order of the model.
    """

    update_ratio: float | None = None
    columns: dict[str, dict[str, float]] = field(default_factory=dict)


class LayerProbe(Watch):
    """Measures one model; it is idle until :meth:`follow` says which.

    Args:
        loop: the loop that is watched.
    """

    def __init__(self, loop: LiveLoop) -> None:
        super().__init__(loop)
        self._layers: dict[str, Tensor] = {}
        self._modules: list[tuple[str, Module]] = []
        self._parameters: list[Tensor] = []
        self._every = 50
        self._steps = 0
        self._hooks: list[RemovableHandle] = []
        self._outputs: dict[str, dict[str, Tensor]] = {}
        self._before: list[Tensor] = []
        self._after: list[Tensor] = []
        self._ready = Measurement()
        self._owner: OptimizerRecord | None = None

    def follow(self, model: Module, every: int) -> None:
        """Measure ``model``, in the long run in one of ``every`` steps."""
        self._every = every
        trained = [  # Keras keeps the integer states of its generators as parameters
            (n, p) for n, p in model.named_parameters() if is_ordinary(p) and p.is_floating_point()
        ]
        self._parameters = [parameter for _, parameter in trained]
        self._layers = {
            name.rpartition(".")[0] or name: parameter
            for name, parameter in trained
            if parameter.dim() > 1
        }
        if not any(hasattr(part, "_orig_mod") for part in model.modules()):
            leaves = [(n, m) for n, m in model.named_modules() if isinstance(m, _ACTIVATIONS)]
            last = next(reversed(self._layers), "")
            head = [(n, m) for n, m in model.named_modules() if n and n == last]
            self._modules = [*leaves, *head]
        self._listen()

    def take(self) -> Measurement:
        """Return what was measured since the last call, and forget it."""
        ready, self._ready = self._ready, Measurement()
        return ready

    def stop(self) -> None:
        """See :class:`~nabla_guard.loop.watch.Watch`."""
        self._silence()
        self._before, self._after = [], []
        self._outputs = {}

    def step_started(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`~nabla_guard.loop.watch.Watch`."""
        if not self._is_mine(record, optimizer) or _is_search(record):
            return
        with torch.no_grad():
            if self._measures_layers:
                self._read_layers()
            if not self._measures_changes:
                return
            if record.facts.closure:  # has stepped already, from where the last step ended
                self._before = self._after
            else:
                self._before = self._copies()

    def step_ended(self, record: OptimizerRecord, optimizer: Optimizer) -> None:
        """See :class:`~nabla_guard.loop.watch.Watch`."""
        if not self._is_mine(record, optimizer):
            return
        if self._before:
            with torch.no_grad():
                self._read_changes()
            self._before = []
        self._steps += 1
        copies = record.facts.closure and self._measures_changes
        self._after = self._copies() if copies else []
        self._silence()
        self._listen()

    # ------------------------------------------------------------------ private
    @property
    def _measures_changes(self) -> bool:
        return self._steps < _EARLY_STEPS or self._measures_layers

    def _copies(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self._parameters]

    @property
    def _measures_layers(self) -> bool:
        early = self._steps < _EARLY_STEPS
        return self._steps % (min(_LAYER_STEPS, self._every) if early else self._every) == 0

    def _is_mine(self, record: OptimizerRecord, optimizer: Optimizer) -> bool:
        """Whether it is the only optimizer of the model; with several, no step is the whole one."""
        if record is not self._owner:
            ids = {id(parameter) for parameter in self._parameters}
            held = [p for group in optimizer.param_groups for p in group["params"]]
            if not any(id(parameter) in ids for parameter in held):
                return False
            if self._owner is not None:
                self._parameters = []
                self._ready = Measurement()
            self._owner = record
        return bool(self._parameters)

    def _read_layers(self) -> None:
        layers = {name: p for name, p in self._layers.items() if p.grad is not None}
        grads = [p.grad for p in layers.values() if p.grad is not None]
        weights = list(self._layers.values())
        if not weights:
            return
        outputs = [(name, layer) for name, column in self._outputs.items() for layer in column]
        scalars = [self._outputs[name][layer] for name, layer in outputs]
        sizes = _norms_of([*grads, *weights])
        values = read([*sizes, *scalars])
        columns: dict[str, dict[str, float]] = {
            "grad_norm": dict.fromkeys(self._layers, 0.0)
            | dict(zip(layers, values[: len(grads)], strict=True)),
            "weight_norm": dict(zip(self._layers, values[len(grads) : len(sizes)], strict=True)),
        }
        for (name, layer), value in zip(outputs, values[len(sizes) :], strict=True):
            columns.setdefault(name, {})[layer] = value
        self._ready.columns = columns
        self._outputs = {}

    def _read_changes(self) -> None:
        before, count = self._before, len(self._before)
        sizes = _norms_of(before)
        torch._foreach_sub_(before, self._parameters)  # in place: half the passes over memory
        values = read([*_norms_of(before), *sizes])
        moved, size = values[:count], values[count:]
        whole = total_norm(size)
        if whole > 0.0:
            self._ready.update_ratio = total_norm(moved) / whole
        if not self._measures_layers:
            return
        by_id = {
            id(p): (change, norm)
            for p, change, norm in zip(self._parameters, moved, size, strict=True)
        }
        self._ready.columns["update_ratio"] = {
            layer: by_id[id(p)][0] / by_id[id(p)][1]
            for layer, p in self._layers.items()
            if p.requires_grad and by_id[id(p)][1] > 0.0  # what is frozen is meant to stay
        }

    def _listen(self) -> None:
        if self._measures_layers:
            self._hooks = [
                module.register_forward_hook(self._hear(name)) for name, module in self._modules
            ]

    def _silence(self) -> None:
        for handle in self._hooks:
            handle.remove()
        self._hooks = []

    def _hear(self, name: str) -> Callable[[Module, object, object], None]:
        def hear(module: Module, inputs: object, output: object) -> None:
            if torch.is_grad_enabled() and isinstance(output, Tensor) and is_ordinary(output):
                self.guarded(lambda: self._keep(name, module, output))

        return hear

    def _keep(self, name: str, module: Module, output: Tensor) -> None:
        with torch.no_grad():
            for column, value in _statistics(module, output.detach()).items():
                self._outputs.setdefault(column, {})[name] = value


def _norms_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the L2 norm of each ordinary tensor as a 0-dim tensor, in one call where possible."""
    return [norm for norm in norms(tensors) if norm is not None]


def _is_search(record: OptimizerRecord) -> bool:
    """Whether a step evaluates its closure several times: its length is chosen, not given."""
    return record.facts.closure and sum(call.kind == "write" for call in record.facts.calls) > 1


def _statistics(module: Module, output: Tensor) -> Mapping[str, Tensor]:
    """Return 0-dim tensors. Units are channels of images, and the last axis of everything else."""
    if output.numel() < 2 or not output.is_floating_point():
        return {}
    units = output.movedim(1, -1) if output.dim() >= 4 else output
    zero = units.reshape(-1, units.shape[-1]) == 0
    found = {
        "zero_fraction": zero.float().mean(),
        "dead_fraction": zero.all(0).float().mean(),
        "activation_std": output.float().std(),
    }
    if isinstance(module, nn.Tanh):
        found["saturated_fraction"] = (output.abs() > _EDGE).float().mean()
    elif isinstance(module, nn.Sigmoid):
        found["saturated_fraction"] = ((output - 0.5).abs() > 0.5 * _EDGE).float().mean()
    return found
