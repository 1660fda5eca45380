"""Small operators to check, and the check itself with a fixed seed."""

import pytest
import torch

from nabla_check import operator


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def check():
    """Check an operator; the seed is fixed unless the test gives another."""

    def run(candidate, inputs, **options):
        options.setdefault("seed", 7)
        return operator(candidate=candidate, inputs=inputs, **options)

    return run


@pytest.fixture
def faults(check):
    """Check an operator and return the IDs of the rules that fail it."""

    def run(candidate, inputs, **options):
        return {issue.rule for issue in check(candidate, inputs, **options).failures}

    return run


@pytest.fixture
def function():
    """Make an autograd.Function of two plain functions and return its apply."""

    def make(forward, backward, jvp=None):
        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        if jvp is not None:
            members["jvp"] = staticmethod(jvp)
        return type("Op", (torch.autograd.Function,), members).apply

    return make


@pytest.fixture
def normal():
    """Draw a float64 leaf that requires a gradient."""

    def make(*shape, seed=0, dtype=torch.float64, requires_grad=True):
        drawn = torch.randn(
            shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        return drawn.to(dtype).requires_grad_(requires_grad)

    return make


@pytest.fixture
def square(function):
    """Make x² with a backward of one's own: ``backward(x, g)`` returns the gradient."""

    def make(backward, save=True):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        return function(forward, lambda ctx, g: backward(ctx.saved_tensors[0], g))

    return make
