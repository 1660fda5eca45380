"""Faults that the given sizes hide, and operators that larger sizes lead astray."""

import pytest
import torch
from torch.nn import functional


def test_a_wrong_axis_hidden_by_a_square_is_found(check, function, normal):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x).mean(-1)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g[:, None] * x / x.shape[0]

    (found,) = check(function(forward, backward), [normal(4, 4)]).failures

    assert found.rule == "CHK201"
    assert "alone" in found.evidence["setting"]


@pytest.mark.parametrize("reference", [None, lambda x, w: functional.conv1d(x, w, stride=2)])
def test_a_fault_of_even_lengths_is_found_from_an_odd_one(faults, function, normal, reference):
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return functional.conv1d(x, w, stride=2)

    def backward(ctx, g):
        x, w = ctx.saved_tensors
        inner = functional.conv_transpose1d(g, w, stride=2)
        rest = x.shape[-1] - inner.shape[-1]  # the unread element is the last one, not the first
        moved = functional.pad(inner, (rest, 0))
        return moved, torch.nn.grad.conv1d_weight(x, w.shape, g, stride=2)

    inputs = [normal(2, 3, 9), normal(4, 3, 3)]

    assert faults(function(forward, backward), inputs, reference=reference) == {"CHK201"}


def test_a_solver_that_does_not_converge_for_larger_sizes_is_not_accused(faults, function, normal):
    def settle(x, w):
        z = torch.zeros_like(x)
        for _ in range(60):
            z = torch.tanh(0.2 * z @ w + x)
        return z

    def forward(ctx, x, w):
        z = settle(x, w)
        ctx.save_for_backward(z, w)
        return z

    def backward(ctx, g):
        z, w = ctx.saved_tensors
        v = g
        for _ in range(60):
            v = g + 0.2 * (v * (1 - z * z)) @ w.mT
        u = v * (1 - z * z)
        return u, 0.2 * z.mT @ u

    assert faults(function(forward, backward), [normal(3, 4), normal(4, 4, seed=1)]) == set()
