"""Small exact helpers: norms, faults, fresh values, places."""

import math

import pytest
import torch
from torch import nn

from nabla_guard.loop.exact import fault_in, looks_fresh, sample_of, tensors_in
from nabla_guard.loop.signals import nonzero_flags, norms, read, total_norm
from nabla_guard.taps.place import user_place


def test_a_fault_counts_nan_and_infinity_apart():
    tensor = torch.tensor([[1.0, math.nan], [math.inf, -math.inf]])
    fault = fault_in("t", tensor)
    assert (fault.nan, fault.inf, fault.size, fault.index) == (1, 2, 4, (0, 1))
    assert fault_in("t", torch.ones(3)) is None
    assert fault_in("t", torch.ones(3, dtype=torch.long)) is None


def test_a_value_that_underflows_when_squared_is_not_zero():
    tiny = torch.full((4,), 1e-30)
    assert float(tiny.norm()) == 0.0
    assert nonzero_flags([tiny, torch.zeros(4)]) == [True, False]


def test_norms_agree_with_torch_in_every_dtype():
    torch.manual_seed(0)
    values = torch.randn(50)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        given = values.to(dtype)
        (norm,) = norms([given])
        assert float(norm) == pytest.approx(float(given.double().norm()), rel=1e-3)


def test_norms_skip_what_has_none():
    found = norms([torch.ones(2), torch.ones(2, dtype=torch.long), torch.ones(2, device="meta")])
    assert [None if norm is None else float(norm) for norm in found][1:] == [None, None]


def test_a_half_norm_does_not_overflow_before_its_values():
    (norm,) = norms([torch.full((100,), 6e4, dtype=torch.float16)])
    assert math.isfinite(float(norm))


def test_the_total_norm_is_that_of_the_concatenation():
    assert total_norm([3.0, 4.0]) == 5.0


def test_read_gives_the_values_in_order():
    assert read([torch.tensor(float(i)) for i in range(40)]) == [float(i) for i in range(40)]
    assert read([]) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(64, 64).weight,
        lambda: nn.Embedding(64, 32).weight,
        lambda: nn.init.xavier_normal_(torch.empty(64, 64)),
        lambda: nn.init.orthogonal_(torch.empty(64, 64)),
        lambda: nn.init.trunc_normal_(torch.empty(64, 64), std=0.02),
    ],
)
def test_usual_initialisations_look_fresh(make):
    torch.manual_seed(0)
    assert looks_fresh(make())


@pytest.mark.parametrize(
    "values",
    [
        torch.zeros(100),
        torch.ones(100),
        torch.eye(16),
        torch.arange(100.0),
        torch.distributions.StudentT(3.0).sample((4096,)),
        torch.ones(4),
    ],
)
def test_set_and_trained_values_do_not(values):
    assert not looks_fresh(values)


def test_a_sample_is_a_copy_of_bounded_size():
    tensor = torch.arange(1000.0)
    sample = sample_of(tensor)
    tensor.zero_()
    assert sample.numel() == 64
    assert float(sample[-1]) > 0


def test_tensors_are_found_in_nested_outputs():
    names = [name for name, _ in tensors_in({"a": torch.ones(1), "b": [torch.ones(1), 3]})]
    assert names == ["a", "b[0]"]


def test_a_place_is_the_line_that_asks():
    place = user_place()
    assert place.file.endswith("test_exact.py")
    assert place.function == "test_a_place_is_the_line_that_asks"
