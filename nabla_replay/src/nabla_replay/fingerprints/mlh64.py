"""A multilinear hash that gives the same 64 bits on every device, without a read per tensor.

The bytes are taken as signed 32-bit lanes ``v``, the last one filled up with zeros, in blocks of
``2**16`` lanes. With odd 64-bit weights ``w`` per position in a block, ``b`` per block::

    value = size * C + sum_j b[j] * sum_i v[j, i] * w[i]        modulo 2**64

One changed lane is always seen: the weight is odd and the change is smaller than ``2**32``. Two
changes cancel only where the weights happen to agree in 33 bits. The weights come from splitmix64
(Steele, Lea and Flood, 2014), so that they need no table. Lanes of 64 bits would be quicker, but
then a flip of the top bit in two lanes cancels for every pair of odd weights.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["MASK", "mlh64_host", "mlh64_lazy", "zeros_hash"]

MASK = (1 << 64) - 1
_BLOCK_LANES = 1 << 16
_CHUNK_BLOCKS = 32  # bounds what a device needs besides the tensor to 16 MiB
_SIZE_WEIGHT = 0x9E3779B97F4A7C15
_LANE_SEED = 0x9E3779B97F4A7C15
_BLOCK_SEED = 0xD6E8FEB86659FD93


def _splitmix(first: int, count: int, seed: int) -> NDArray[np.int64]:
    """Return odd weights for the positions ``first`` to ``first + count``."""
    with np.errstate(over="ignore"):
        z = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(seed)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z | np.uint64(1)).view(np.int64)


@cache
def _lane_weights() -> NDArray[np.int64]:
    return _splitmix(0, _BLOCK_LANES, _LANE_SEED)


@cache
def _lane_weights_on(device: torch.device) -> Tensor:
    return torch.from_numpy(_lane_weights()).to(device)


@lru_cache(maxsize=1024)
def _block_weights(chunk: int) -> NDArray[np.int64]:
    return _splitmix(chunk * _CHUNK_BLOCKS, _CHUNK_BLOCKS, _BLOCK_SEED)


@lru_cache(maxsize=1024)
def _block_weights_on(device: torch.device, chunk: int) -> Tensor:
    return torch.from_numpy(_block_weights(chunk)).to(device)


def _signed(value: int) -> int:
    value &= MASK
    return value - (1 << 64) if value >> 63 else value


def mlh64_host(raw: NDArray[np.uint8]) -> int:
    """Hash bytes in host memory; equal to :func:`mlh64_lazy` of the same bytes on any device.

    Args:
        raw: shape ``[bytes]``, contiguous.
    """
    value = raw.size * _SIZE_WEIGHT
    whole = raw.size // 4
    tail = raw[whole * 4 :]
    lanes = raw[: whole * 4].view(np.int32)
    if tail.size:
        last = np.zeros(4, np.uint8)
        last[: tail.size] = tail
        lanes = np.concatenate([lanes, last.view(np.int32)])
    weights = _lane_weights()
    for index, start in enumerate(range(0, lanes.size, _BLOCK_LANES)):
        block = lanes[start : start + _BLOCK_LANES]
        product = np.multiply(block, weights[: block.size], dtype=np.int64)
        chunk, within = divmod(index, _CHUNK_BLOCKS)
        value += int(np.add.reduce(product)) * int(_block_weights(chunk)[within])
    return value & MASK


def zeros_hash(size_bytes: int) -> int:
    """Return the hash of so many zero bytes."""
    return (size_bytes * _SIZE_WEIGHT & MASK) or 1


def mlh64_lazy(raw: Tensor) -> Tensor:
    """Hash bytes where they are.

    Args:
        raw: ``uint8``, shape ``[bytes]``, contiguous, on any device.

    Returns:
        One ``int64`` without dimensions on the same device: nothing was read from there.
    """
    size = raw.numel()
    padded = -(-size // 4) * 4
    if padded != size or raw.storage_offset() % 4:
        raw = torch.nn.functional.pad(raw, (0, padded - size)).clone()
    lanes = raw.view(torch.int32)
    value = torch.full((), _signed(size * _SIZE_WEIGHT), dtype=torch.int64, device=raw.device)
    weights = _lane_weights_on(raw.device)
    chunk_lanes = _BLOCK_LANES * _CHUNK_BLOCKS
    for start in range(0, lanes.numel(), chunk_lanes):
        chunk = lanes[start : start + chunk_lanes]
        value = value + _chunk(chunk, weights, start // chunk_lanes)
    return value


def _chunk(lanes: Tensor, weights: Tensor, chunk: int) -> Tensor:
    """Return the part of the sum that the blocks of one chunk give."""
    whole = lanes.numel() // _BLOCK_LANES
    rest = lanes[whole * _BLOCK_LANES :]
    sums = []
    if whole:
        sums.append((lanes[: whole * _BLOCK_LANES].view(whole, -1) * weights).sum(1))
    if rest.numel():
        sums.append((rest * weights[: rest.numel()]).sum().reshape(1))
    blocks = torch.cat(sums)
    return (blocks * _block_weights_on(blocks.device, chunk)[: blocks.numel()]).sum()
