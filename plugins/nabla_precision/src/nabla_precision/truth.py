"""What one call gave in the reference pass: the exact numbers that candidates are compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .alone import Alone, Cast, Leaf, run_alone
from .calls import Frame
from .exact import Exact, top
from .tree import tensors_in

__all__ = ["Truth", "spoilt"]

_ROOM = 2.0**-4
"""Gradients are scaled so that their largest entry is this: room for sums on the way back."""

_SAME = 1e-6
_DRAWS_DIFFER = 1e-3


class Truth:
    """The exact numbers of one call.

    Attributes:
        frame: the call.
        outputs: what its own code computed.
        returned: what it returned.
        given: what it was given, by its caller and by other modules.
        grads: gradients of what it returned.
        cotangents: gradients of its outputs, all multiplied by one power of two, so that only their
            digits are judged.

    Args:
        frame: a call of the reference pass.
        reference: the reference's dtype.
        control: float32.
        parameter_grads: exact gradients by ``id`` of the parameter.
    """

    def __init__(
        self,
        frame: Frame,
        reference: Cast,
        control: Cast,
        parameter_grads: Mapping[int, Tensor],
    ) -> None:
        self.frame = frame
        self.outputs = [Exact(tensor) for tensor in frame.results]
        self.returned = self.outputs[len(self.outputs) - len(tensors_in(frame.output)) :]
        answers = [tensor for child in frame.children for tensor in tensors_in(child.output)]
        self.given = [Exact(tensor) for tensor in (*tensors_in(frame.given), *answers)]
        self.grads = [Exact(tensor) for tensor in frame.grads.values()]
        self._scale = _scale(frame.cotangents)
        self.cotangents = {p: c * self._scale for p, c in frame.cotangents.items() if self._scale}
        self._reference = reference
        self._control = control
        self._parameter_grads = parameter_grads
        self._exact: Alone | None = None
        self._exact_grads: list[Exact | None] | None = None
        self._natural: Alone | None = None

    def exact_grads(self, leaves: Sequence[Leaf]) -> Sequence[Exact | None]:
        """Return the exact gradient of each leaf in float32, scaled as the cotangents are."""
        if self._exact_grads is None:
            found = self._found_grads(leaves)
            self._exact_grads = [None if grad is None else Exact(grad.float()) for grad in found]
        return self._exact_grads

    def _found_grads(self, leaves: Sequence[Leaf]) -> list[Tensor | None]:
        frame = self.frame
        if not frame.is_leaf or frame.overwrites:
            return list(self._again.grads)  # what it passes back may be mixed with other paths
        if any(leaf.parameter and leaf.parameter not in self._parameter_grads for leaf in leaves):
            return list(self._again.grads)  # other calls use the parameter too
        found = [
            self._parameter_grads[leaf.parameter] if leaf.parameter else leaf.exact
            for leaf in leaves
        ]
        return [None if grad is None else _narrowed(grad, self._scale) for grad in found]

    def through(self, dtype: torch.dtype) -> tuple[list[Exact], list[Exact | None]]:
        """Return outputs and gradients on what the call was given, rounded to ``dtype``."""
        rounding = Cast(self._reference.dtype, through=dtype)
        alone = _with_default(self._reference.dtype, self.frame, rounding, self.cotangents)
        grads = [None if grad is None else Exact(grad) for grad in alone.grads]
        return [Exact(output) for output in alone.outputs], grads

    @property
    def natural(self) -> list[float]:
        """The norm of each gradient without cancellation between samples."""
        return self._control_run.natural

    def why_not_repeatable(self) -> str:
        """Run the call once more as in the reference; say why it cannot be judged alone."""
        try:
            outputs = [one.tensor for one in self.outputs]
            if not _same(self._again.outputs, outputs, _SAME):
                return "it does not return the same when it is run again"
            if self.frame.random is None:
                return ""
            if not _same(self._control_run.outputs, outputs, _DRAWS_DIFFER):
                return "it draws other random numbers in another dtype"
        except Exception as error:
            return f"run alone, it raises {type(error).__name__}: {error}"
        return ""

    # ------------------------------------------------------------------ private
    @property
    def _again(self) -> Alone:
        if self._exact is None:
            dtype = self._reference.dtype
            self._exact = _with_default(dtype, self.frame, self._reference, self.cotangents)
        return self._exact

    @property
    def _control_run(self) -> Alone:
        if self._natural is None:
            self._natural = run_alone(self.frame, self._control, self.cotangents, with_natural=True)
        return self._natural


def spoilt(given: Sequence[Exact], dtype: torch.dtype) -> bool:
    """Whether the dtype cannot hold what a call is given: other modules answer for that."""
    limits = torch.finfo(dtype)
    if dtype is torch.float32:
        return False
    for one in given:
        if one.highest > limits.max:
            return True
        if 0.0 < one.highest < limits.tiny / limits.eps and _loses(one.tensor, dtype):
            return True
    return False


def _with_default(
    dtype: torch.dtype, frame: Frame, cast: Cast, cotangents: Mapping[int, Tensor]
) -> Alone:
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return run_alone(frame, cast, cotangents)
    finally:
        torch.set_default_dtype(usual)


def _scale(grads: Mapping[int, Tensor]) -> float:
    highest = max((top(grad) for grad in grads.values()), default=0.0)
    if not 0.0 < highest < math.inf:
        return 0.0
    return float(2.0 ** math.floor(math.log2(_ROOM / highest)))


def _narrowed(grad: Tensor, scale: float) -> Tensor:
    """Return ``scale * grad`` in float32: the product may fit where ``grad`` itself does not."""
    return torch.mul(grad, scale, out=torch.empty_like(grad, dtype=torch.float32))


def _loses(tensor: Tensor, dtype: torch.dtype) -> bool:
    lost = torch.linalg.vector_norm(tensor.to(dtype).to(tensor.dtype) - tensor)
    return bool(lost > float(torch.finfo(dtype).eps) * torch.linalg.vector_norm(tensor))


def _same(found: Sequence[Tensor], expected: Sequence[Tensor], relative: float) -> bool:
    if len(found) != len(expected):
        return False
    return all(
        a.shape == b.shape
        and torch.allclose(
            a.double().nan_to_num(),
            b.double().nan_to_num(),
            rtol=relative,
            atol=relative * _size(b),
        )
        for a, b in zip(found, expected, strict=True)
    )


def _size(tensor: Tensor) -> float:
    return top(tensor.nan_to_num(0.0, 0.0, 0.0))
