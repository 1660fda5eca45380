"""What went into and came out of root modules since the last step, kept for the cold path."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from ..facts import TensorFault
from .exact import fault_in, tensors_in
from .roots import RootRecord
from .signals import extremes, is_ordinary

__all__ = ["Output", "Traffic"]

_MAX_TENSORS = 16
_KEPT_BYTES = 1 << 18

_Call = tuple[RootRecord, tuple[object, ...], Mapping[str, object], object]

Output = Tensor | tuple[Tensor, Tensor]
"""A small output itself, or minimum and maximum of a large one, reduced at once and not kept."""


@dataclass(slots=True)
class Traffic:
    """Inputs and outputs of root modules that were called with gradients on, in one thread.

    Attributes:
        inputs: root, argument and the tensor itself, graph-free ones only.
        outputs: root, name and what is kept of each output.
        complete: whether no output was left out.
    """

    inputs: list[tuple[RootRecord, str, Tensor]] = field(default_factory=list)
    outputs: list[tuple[RootRecord, str, Output]] = field(default_factory=list)
    complete: bool = True
    _later: list[_Call] = field(default_factory=list)
    _counted: int = 0

    def put_off(
        self,
        root: RootRecord,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        output: object,
    ) -> None:
        """Note one call as it is: most steps end before anybody asks for its tensors."""
        if len(self._later) < _MAX_TENSORS:
            self._later.append((root, args, kwargs, output))
        else:
            self.complete = False

    def uncounted(self) -> list[RootRecord]:
        """Return the roots of the calls that were put off, each call once."""
        new = [root for root, *_ in self._later[self._counted :]]
        self._counted = len(self._later)
        return new

    def unpack(self) -> None:
        """Note the calls that were put off."""
        later, self._later, self._counted = self._later, [], 0
        for call in later:
            self.add(*call)

    def add(
        self,
        root: RootRecord,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        output: object,
    ) -> None:
        """Note one call."""
        for index, value in enumerate(args):
            if type(value) is not Tensor:
                self._add_inputs(root, f"argument {index}", value)
            elif value.is_floating_point() and not value.requires_grad:
                self._add_input(root, f"argument {index}", value)
        for name, value in kwargs.items():
            self._add_inputs(root, name, value)
        if isinstance(output, Tensor):
            self._add_output(root, "", output)
        else:
            for name, tensor in tensors_in(output):
                self._add_output(root, name, tensor)

    @property
    def limits(self) -> list[Tensor]:
        """Minimum and maximum of each large output."""
        return [limit for _, _, kept in self.outputs if type(kept) is tuple for limit in kept]

    def clear(self) -> None:
        """Forget everything, so that no batch is kept past its step."""
        if self.inputs or self.outputs:
            self.inputs.clear()
            self.outputs.clear()
        self._later.clear()
        self._counted = 0
        self.complete = True

    def odd_inputs(self) -> tuple[TensorFault, ...]:
        """Return the inputs that are not finite although their like was in steps that went well."""
        return tuple(
            fault
            for root, name, tensor in self.inputs
            if name not in root.odd_inputs
            and (fault := fault_in(f"{root.facts.name} {name}", tensor)) is not None
        )

    def usual_inputs(self) -> frozenset[str]:
        """Return the inputs that were not finite in steps that went well."""
        return frozenset(
            f"{root.facts.name} {name}" for root, _, _ in self.inputs for name in root.odd_inputs
        )

    def odd_output(self, large: Sequence[float]) -> TensorFault | None:
        """Return the first output that is not finite; an infinity only if its like never had one.

        Args:
            large: minimum and maximum of each large output, in order.
        """
        for root, name, fault in self._faults(large):
            if fault.nan or name not in root.odd_outputs:
                return fault
        return None

    def learn(self, large: Sequence[float]) -> None:
        """Remember what is not finite in a step that went well. Reads every kept tensor."""
        for root, name, tensor in self.inputs:
            if fault_in(name, tensor) is not None:
                root.odd_inputs.add(name)
        for root, name, _ in self._faults(large):
            root.odd_outputs.add(name)

    def _faults(self, large: Sequence[float]) -> list[tuple[RootRecord, str, TensorFault]]:
        limits = iter(large)
        found = []
        for root, name, kept in self.outputs:
            label = f"{root.facts.name} {name}".rstrip()
            if isinstance(kept, Tensor):
                fault = fault_in(label, kept)
            else:
                fault = _fault_from_limits(label, next(limits), next(limits))
            if fault is not None:
                found.append((root, name, fault))
        return found

    def _add_inputs(self, root: RootRecord, name: str, value: object) -> None:
        for path, tensor in tensors_in(value, name):
            if tensor.is_floating_point() and not tensor.requires_grad:
                self._add_input(root, path, tensor)

    def _add_input(self, root: RootRecord, path: str, tensor: Tensor) -> None:
        if len(self.inputs) < _MAX_TENSORS and is_ordinary(tensor):
            self.inputs.append((root, path, tensor))

    def _add_output(self, root: RootRecord, name: str, tensor: Tensor) -> None:
        if not tensor.is_floating_point():
            return
        if len(self.outputs) >= _MAX_TENSORS or not is_ordinary(tensor):
            self.complete = False
        elif tensor.nbytes <= _KEPT_BYTES:
            self.outputs.append((root, name, tensor.detach()))
        else:
            limits = extremes(tensor)
            if limits is None:
                self.complete = False
            else:
                self.outputs.append((root, name, limits))


def _fault_from_limits(label: str, low: float, high: float) -> TensorFault | None:
    """Tell a NaN or an infinity from minimum and maximum; how many there are is not known."""
    if math.isfinite(low) and math.isfinite(high):
        return None
    is_nan = math.isnan(low) or math.isnan(high)
    return TensorFault(name=label, nan=int(is_nan), inf=int(not is_nan), size=0)
