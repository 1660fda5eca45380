"""One op of a re-execution, with what was measured of its inputs before it ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch._ops import OpOverload

from .sites import Site, Spot
from .states import bad_mask

__all__ = ["Call", "is_all_bad", "tensors_of", "unwritten"]


def tensors_of(args: Sequence[object], kwargs: Mapping[str, object]) -> list[Tensor]:
    """Return the tensors among the arguments of an op, and in its lists of tensors."""
    found: list[Tensor] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(item for item in value if isinstance(item, Tensor))
    return found


def is_all_bad(tensor: Tensor) -> bool:
    """Return whether a tensor holds nothing but NaN and infinities."""
    mask = bad_mask(tensor)
    return mask is None or bool(mask.all())


def unwritten(tensor: Tensor, written: list[Tensor]) -> Tensor:
    """A copy of a tensor that is about to be changed, else the tensor itself."""
    return tensor.clone() if any(tensor is given for given in written) else tensor


@dataclass(slots=True, kw_only=True, eq=False)  # frozen would cost three times
class Call:
    """One op with what was measured of its inputs."""

    op: OpOverload
    name: str
    args: Sequence[object]
    kwargs: Mapping[str, object]
    spot: Spot
    written: list[Tensor]
    inputs: list[Tensor]
    has_bad: bool
    with_number: bool
    worst: int
    fed: frozenset[int]
    parents: frozenset[int] = frozenset()

    @property
    def site(self) -> Site:
        """Where it runs."""
        return self.spot.site

    @property
    def in_backward(self) -> bool:
        """Whether a derivative is being computed by autograd."""
        return self.spot.node is not None
