"""What a person hands to ``record_step``, in the forms that a record has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from nabla_core.errors import UsageError

from ..fingerprints.crc32 import crc32_of
from .digests import state_digest

__all__ = ["batch_of", "loss_of", "signals_of", "step_of", "tensors_of"]

_WHOLE = frozenset((int,))
_MOST_STEPS = 1 << 63
_MAX_INDICES = 256  # more are stored as a digest: a record has to stay small


def loss_of(given: object) -> float | None:
    """Return the value of a loss: a number, or a tensor of one element.

    Raises:
        UsageError: it is neither.
    """
    if type(given) is Tensor and given.numel() == 1:
        return float(given.item())
    if given is None or isinstance(given, (int, float)):
        return None if given is None else float(given)
    if isinstance(given, Tensor) and given.numel() == 1:
        return float(given.detach())
    if isinstance(given, Tensor):
        raise UsageError(f"record_step(loss=...): has shape {tuple(given.shape)}, needs one number")
    if hasattr(given, "__float__"):
        return float(given)
    raise UsageError(f"record_step(loss={type(given).__name__}): needs one number")


def batch_of(given: object) -> tuple[int, ...] | str | None:
    """Return the indices of a batch, or a digest of whatever else says which batch it is."""
    if given is None or isinstance(given, str):
        return given
    if (
        isinstance(given, (list, tuple))
        and len(given) <= _MAX_INDICES
        and _WHOLE.issuperset(map(type, given))
    ):
        return tuple(given)
    if isinstance(given, Tensor):
        if given.dtype.is_floating_point or given.dtype.is_complex or given.numel() > _MAX_INDICES:
            return f"{crc32_of(given):08x}"
        given = given.reshape(-1).tolist()
    if isinstance(given, Iterable) and not isinstance(given, Mapping):
        items = [
            int(item) if isinstance(item, Tensor) and item.numel() == 1 else item for item in given
        ]
        whole = all(hasattr(item, "__index__") for item in items)
        if whole and len(items) <= _MAX_INDICES:
            return tuple(int(item) for item in items)
        return f"{state_digest(items):08x}"
    return f"{state_digest(given):08x}"


def step_of(given: object) -> int | None:
    """Return the number of a step.

    Raises:
        UsageError: it is no whole number, or below 0.
    """
    if given is None or (type(given) is int and 0 <= given < _MOST_STEPS):
        return given
    if not hasattr(given, "__index__") or not 0 <= int(given) < _MOST_STEPS:
        raise UsageError(
            f"record_step(step={given!r}): needs a whole number, at least 0 and below 2**63"
        )
    return int(given)


def tensors_of(given: object) -> dict[str, Tensor]:
    """Return further evidence by name.

    Raises:
        UsageError: it is no mapping from name to tensor.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise UsageError(f"record_step(tensors={type(given).__name__}): needs name: tensor")
    for name, tensor in given.items():
        if tensor is not None and not isinstance(tensor, Tensor):
            raise UsageError(
                f"record_step(tensors[{name!r}]) is a {type(tensor).__name__}, not a tensor"
            )
    return {str(name): tensor for name, tensor in given.items() if tensor is not None}


def signals_of(given: object) -> dict[str, float]:
    """Return further numbers by name.

    Raises:
        UsageError: it is no mapping from name to number.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise UsageError(f"record_step(metrics={type(given).__name__}): needs name: number")
    found = {}
    for name, value in given.items():
        number = loss_of(value)
        if number is not None:
            found[str(name)] = number
    return found
