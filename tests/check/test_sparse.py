"""Sparse and ragged tensors: data as they are, gradients by their values."""

import pytest
import torch

from nabla_core.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


@pytest.fixture
def matrix():
    where = torch.tensor([[0, 1, 2], [2, 0, 1]])
    return torch.sparse_coo_tensor(where, torch.tensor([1.0, 2.0, 3.0]).double(), (3, 3))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("faulty", [False, True])
def test_a_sparse_matrix_is_data(faults, function, normal, matrix, layout, faulty):
    def forward(ctx, s, x):
        ctx.save_for_backward(s)
        return s @ x

    def backward(ctx, g):
        (s,) = ctx.saved_tensors
        return None, (s if faulty else s.t()) @ g

    inputs = [matrix.to_sparse(layout=layout), normal(3, 4)]

    assert faults(function(forward, backward), inputs) == ({"CHK201"} if faulty else set())


@pytest.mark.parametrize("faulty", [False, True])
def test_a_sparse_gradient_counts_by_its_values(faults, function, normal, faulty):
    keys = torch.tensor([1, 3, 1])

    def backward(ctx, g):
        kept = slice(1, None) if faulty else slice(None)  # the last of two equal keys wins
        return torch.sparse_coo_tensor(keys[kept][None], g[kept], (5, 2))

    pick = function(lambda ctx, w: w[keys], backward)

    assert faults(pick, [normal(5, 2)]) == ({"CHK201"} if faulty else set())


def test_a_sparse_output_is_judged_by_its_values(faults, normal):
    assert faults(lambda x: (2 * x).to_sparse(), [normal(3, 4)]) == set()


def test_a_sparse_input_cannot_be_differentiated(check, matrix):
    with pytest.raises(UsageError, match="s is sparse_coo and requires a gradient"):
        check(lambda s: s.to_dense(), [matrix.requires_grad_()])


def test_a_ragged_tensor_is_data(faults, normal):
    rows = torch.nested.nested_tensor(
        [normal(2, 3).detach(), normal(4, 3).detach()], layout=torch.jagged
    )

    assert faults(lambda n, w: (n @ w).values(), [rows, normal(3, 2)]) == set()
