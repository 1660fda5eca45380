"""Tensors and their bytes, without a copy."""

from __future__ import annotations

import torch

from ..errors import StateFormatError
from .container import TensorSlot
from .dtypes import torch_dtype

__all__ = ["new_tensor", "tensor_octets"]


def tensor_octets(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor in host memory; writing to them writes the tensor.

    Args:
        tensor: any shape, any dense dtype.
    """
    if tensor.numel() == 0:
        return memoryview(bytearray())
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def new_tensor(slot: TensorSlot) -> torch.Tensor:
    """Return a tensor for the bytes of a slot; its values are undefined.

    Raises:
        StateFormatError: torch lacks the dtype, or there is no memory for it.
    """
    dtype = torch_dtype(slot.dtype)
    if dtype is None:
        raise StateFormatError(f"this torch has no dtype for {slot.dtype}")
    try:
        return torch.empty(slot.shape, dtype=dtype)
    except (RuntimeError, MemoryError) as error:
        raise StateFormatError(
            f"tensor {slot.name[:80]!r} of shape {slot.shape} cannot be made: "
            f"{str(error).splitlines()[0]}"
        ) from error
