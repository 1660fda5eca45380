"""What candidate, reference and caller share: operands, statistics, random generators."""

import random

import numpy as np
import pytest
import torch
from torch.nn import functional as nn

from nabla_check.inputs import rng


def with_statistics(x, mean, variance):
    return nn.batch_norm(x, mean, variance, training=True)


@pytest.fixture
def batch(normal):
    return [normal(6, 3), torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)]


def test_state_that_the_reference_writes_too_is_the_contract(faults, batch):
    assert faults(with_statistics, batch, reference=with_statistics) == set()
    assert faults(with_statistics, batch) == {"CHK231"}


def test_other_state_than_the_reference_writes_is_a_fault(faults, batch):
    def shifted(x, mean, variance):
        return with_statistics(x, mean.add_(1.0), variance)

    assert faults(shifted, batch, reference=with_statistics) == {"CHK231"}


def test_running_statistics_of_torchs_own_functions_are_known_by_name(faults, batch):
    x, mean, variance = batch

    assert (
        faults(torch.native_batch_norm, [x, None, None, mean, variance, True, 0.1, 1e-5]) == set()
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_frozen_operands_reach_the_reference_in_the_same_precision(faults, normal, dtype):
    x = normal(4, 3, dtype=dtype)
    target = normal(4, 3, seed=1, requires_grad=False).sign().mul(0.7).to(dtype)

    assert faults(nn.soft_margin_loss, [x, target], reference=nn.soft_margin_loss) == set()


def test_an_overflow_that_the_reference_has_too_is_no_fault(faults):
    def through_the_square(x):
        return (x * x).sum().sqrt()

    x = torch.full((4,), 300.0, dtype=torch.float16, requires_grad=True)

    assert faults(through_the_square, [x], reference=through_the_square) == set()
    assert faults(through_the_square, [x]) == {"CHK241"}


def test_other_sizes_never_grow_beyond_the_memory(faults, normal):
    assert faults(torch.square, [normal(2, 2, 2, 2, 2, 2)], reference=torch.square) == set()


@pytest.mark.parametrize("draws_before", [0, 1, 2])
def test_a_check_leaves_the_generators_as_they_were(check, normal, draws_before):
    def draws(x):
        return x * float(np.random.randn()) * random.gauss(0, 1) * torch.randn(())

    def tail():
        return np.random.randn(3).tolist(), random.gauss(0, 1), torch.randn(3).tolist()

    def start():
        np.random.seed(3)
        random.seed(3)
        torch.manual_seed(3)
        np.random.randn(draws_before)  # an odd number leaves a second Gaussian in store

    start()
    expected = tail()
    for _ in range(2):
        start()
        check(draws, [normal(3)], level="first-order")
        assert tail() == expected


def test_every_draw_and_every_seed_of_random_is_seen():
    before = rng.capture()
    random.random()
    drawn = rng.capture()
    random.seed(5)
    seeded = rng.capture()
    random.seed(6)

    assert rng.changed(before, drawn) == ("random",)
    assert rng.changed(seeded, rng.capture()) == ("random",)
