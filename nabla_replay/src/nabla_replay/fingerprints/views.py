"""The bytes of a tensor, whatever its layout, device or subclass."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import Buffer, Parameter

__all__ = ["byte_count", "byte_view", "dense_parts", "is_plain", "raw_bytes", "window"]

_PLAIN = (Tensor, Parameter, Buffer)
_ROW_COMPRESSED = (torch.sparse_csr, torch.sparse_bsr)
_COLUMN_COMPRESSED = (torch.sparse_csc, torch.sparse_bsc)


def is_plain(tensor: Tensor) -> bool:
    """Whether the tensor's own memory, read from front to back, is its value."""
    return (
        type(tensor) in _PLAIN
        and tensor.layout is torch.strided
        and not tensor.is_complex()
        and not tensor.is_quantized
        and not tensor.is_neg()
        and not tensor.is_meta
    )


def byte_count(tensor: Tensor) -> int:
    """Return the size of a plain tensor's value in bytes."""
    return tensor.numel() * tensor.element_size()


def byte_view(tensor: Tensor) -> Tensor:
    """Return the bytes of a plain tensor in logical order, shape ``[bytes]``, on its own device.

    A copy is made only where the order in memory is another one.
    """
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


@lru_cache(maxsize=4096)
def window(size: int) -> type[ctypes.Array[ctypes.c_char]]:
    """Return the ctypes array of ``size`` bytes; making the type costs more than hashing does."""
    return ctypes.c_char * size


def raw_bytes(tensor: Tensor, start: int, end: int) -> ctypes.Array[ctypes.c_char]:
    """Return bytes ``start`` to ``end`` of a plain, contiguous CPU tensor, without a copy.

    The result does not keep the memory alive: use it while the tensor is at hand.
    """
    return window(end - start).from_address(tensor.data_ptr() + start)


def dense_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return plain tensors whose bytes together are the value of ``tensor``.

    A shard of a distributed tensor stands for the whole: each rank has a record of its own. Tensors
    without storage (meta) have no parts.
    """
    tensor = tensor.detach()
    if tensor.is_meta:
        return ()
    if hasattr(tensor, "to_local"):
        return dense_parts(tensor.to_local())
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return tuple(part for name in names for part in dense_parts(getattr(tensor, name)))
    if tensor.layout is not torch.strided:
        return tuple(part for inner in _sparse_parts(tensor) for part in dense_parts(inner))
    if tensor.is_quantized:
        return (tensor.int_repr(),)
    if tensor.is_complex():
        return (torch.view_as_real(tensor.resolve_conj().resolve_neg()),)
    return (tensor.resolve_neg(),)


def _sparse_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    if tensor.layout is torch.sparse_coo:
        whole = tensor.coalesce()
        return (whole.indices(), whole.values())
    if tensor.layout in _ROW_COMPRESSED:
        return (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    if tensor.layout in _COLUMN_COMPRESSED:
        return (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    return (tensor.to_dense(),)
