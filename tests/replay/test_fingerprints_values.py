"""A fingerprint sees every kind of change, and is the same number on every device."""

import numpy as np
import pytest
import torch

from nabla_replay.fingerprints.crc32 import crc32_of
from nabla_replay.fingerprints.mlh64 import MASK, mlh64_host, mlh64_lazy, zeros_hash
from nabla_replay.fingerprints.views import byte_view, dense_parts

TRIALS = 40
ALGORITHMS = {
    "crc32": crc32_of,
    "mlh64 on the host": lambda tensor: mlh64_host(byte_view(tensor).numpy()),
    "mlh64 in torch": lambda tensor: int(mlh64_lazy(byte_view(tensor))) & MASK,
}


def one_bit(tensor, draw):
    words = tensor.view(torch.int32).view(-1)
    place, bit = draw(words.numel()), draw(32)
    words[place] ^= (1 << bit) if bit < 31 else -(1 << 31)


def one_ulp(tensor, draw):
    flat = tensor.view(-1)
    place = draw(flat.numel())
    flat[place] = torch.nextafter(flat[place], torch.tensor(9e9))


def two_swapped(tensor, draw):
    flat = tensor.view(-1)
    first, second = draw.two(flat.numel())
    flat[[first, second]] = flat[[second, first]]


def two_rows_swapped(tensor, draw):
    first, second = draw.two(len(tensor))
    tensor[[first, second]] = tensor[[second, first]]


def two_signs(tensor, draw):
    flat = tensor.view(-1)
    flat[list(draw.two(flat.numel()))] *= -1


def all_signs(tensor, draw):
    tensor.neg_()


def transposed(tensor, draw):
    tensor.copy_(tensor.t().contiguous())


def top_bit_of_two(tensor, draw):
    words = tensor.view(torch.int32).view(-1)
    first, second = draw.two(words.numel() // 2)
    for place in (2 * first + 1, 2 * second + 1):
        words[place] ^= -(1 << 31)


def decay_of_ones(tensor, draw):
    tensor.fill_(1.0 - 1e-5 * (1 + draw(300)))


def ulp_beside_a_large_value(tensor, draw):
    flat = tensor.view(-1)
    place = 1 + draw(flat.numel() - 1)
    flat[place] = torch.nextafter(flat[place], torch.tensor(1.0))


def negative_zero(tensor, draw):
    tensor.view(-1)[draw(tensor.numel())] = -0.0


def noise():
    return torch.randn(64, 64, generator=torch.Generator().manual_seed(1))


def large_and_small():
    tensor = torch.full((64, 64), 1e-6)
    tensor[0, 0] = 1e4
    return tensor


CHANGES = {
    one_bit: noise,
    one_ulp: noise,
    two_swapped: noise,
    two_rows_swapped: noise,
    two_signs: noise,
    all_signs: noise,
    transposed: noise,
    top_bit_of_two: noise,
    decay_of_ones: lambda: torch.ones(64, 64),
    ulp_beside_a_large_value: large_and_small,
    negative_zero: lambda: torch.zeros(64, 64),
}


class Draw:
    def __init__(self, seed):
        self.generator = np.random.default_rng(seed)

    def __call__(self, count):
        return int(self.generator.integers(count))

    def two(self, count):
        return [int(one) for one in self.generator.permutation(count)[:2]]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_no_kind_of_change_is_missed(algorithm, change, reached):
    fingerprint, before = ALGORITHMS[algorithm], CHANGES[change]()
    draw, known = Draw(0), fingerprint(before)

    missed = 0
    for _ in range(TRIALS):
        after = before.clone()
        change(after, draw)
        missed += fingerprint(after) == known

    reached(f"kinds of change missed by {algorithm}", missed > 0)
    assert missed == 0


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((), torch.float64),
        ((0,), torch.float32),
        ((7,), torch.float32),
        ((5,), torch.bfloat16),
        ((64, 64), torch.float16),
        ((200_001,), torch.int8),
        ((33,), torch.bool),
        ((3 << 20,), torch.float32),
    ],
)
def test_both_forms_of_the_device_hash_agree(shape, dtype):
    raw = byte_view((torch.randn(shape) * 50).to(dtype))
    assert int(mlh64_lazy(raw)) & MASK == mlh64_host(raw.numpy())


def test_a_part_of_a_tensor_hashes_alike_at_any_offset():
    raw = byte_view(torch.randn(1000))
    for start in (0, 1, 3, 64):
        part = raw[start : start + 333]
        assert int(mlh64_lazy(part)) & MASK == mlh64_host(part.numpy().copy())


def test_length_counts_although_zeros_do_not():
    values = {mlh64_host(np.zeros(size, np.uint8)) for size in range(9)}
    assert len(values) == 9
    assert zeros_hash(8) == mlh64_host(np.zeros(8, np.uint8))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(4, 3).t(),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(5)[::2],
        torch.randn(1).expand(6),
    ],
    ids=["transposed", "channels last", "strided", "expanded"],
)
def test_the_order_in_memory_does_not_count(tensor):
    assert crc32_of(tensor) == crc32_of(tensor.contiguous().clone())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(4, dtype=torch.complex64),
        torch.randn(4, dtype=torch.complex64).conj(),
        torch.randn(3, 3).to_sparse(),
        torch.randn(3, 3).to_sparse_csr(),
        torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8),
    ],
    ids=["complex", "conjugate", "coo", "csr", "quantised"],
)
def test_a_tensor_of_another_layout_is_hashed_by_its_parts(tensor):
    assert dense_parts(tensor)
    assert crc32_of(tensor) == crc32_of(tensor.clone())
    assert crc32_of(tensor) != crc32_of(tensor + tensor if not tensor.is_quantized else tensor[:2])


def test_a_tensor_without_storage_has_no_parts():
    assert dense_parts(torch.empty(3, device="meta")) == ()
