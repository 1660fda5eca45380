"""No alarm on a few dozen of torch's own operators, one of each kind; all are in test_op_db."""

import pytest
import torch
from torch.nn import functional as nn

OPERATORS = {
    "add with broadcasting": (torch.add, ["4 3", "3"]),
    "div": (torch.div, ["4 3", "+4 3"]),
    "pow": (torch.pow, ["+5", "5"]),
    "exp": (torch.exp, ["5"]),
    "log": (torch.log, ["+5"]),
    "erf": (torch.erf, ["5"]),
    "atan2": (torch.atan2, ["5", "5"]),
    "relu": (nn.relu, ["4 3"]),
    "gelu": (nn.gelu, ["4 3"]),
    "hardtanh": (nn.hardtanh, ["4 3"]),
    "softmax": (lambda x: x.softmax(-1), ["4 3"]),
    "logsumexp": (lambda x: x.logsumexp(0), ["4 3"]),
    "cumprod": (lambda x: x.cumprod(0), ["5 2"]),
    "prod": (torch.prod, ["5"]),
    "var": (torch.var, ["4 3"]),
    "norm": (torch.linalg.vector_norm, ["4 3"]),
    "sort": (lambda x: x.sort(0), ["5 2"]),
    "topk": (lambda x: x.topk(2), ["3 5"]),
    "max": (lambda x: x.max(0), ["5 2"]),
    "median": (torch.median, ["7"]),
    "gather": (lambda x: x.gather(0, torch.tensor([[0, 2], [2, 2]])), ["3 2"]),
    "index_add": (lambda x, y: x.index_add(0, torch.tensor([1, 1]), y), ["3 2", "2 2"]),
    "where": (lambda x, y: torch.where(x > 0, x, y), ["4 3", "4 3"]),
    "matmul": (torch.matmul, ["3 4", "4 2"]),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->bik", x, y), ["2 3 2", "2 2 3"]),
    "inv": (lambda x: torch.linalg.inv(x @ x.mT + torch.eye(3)), ["3 3"]),
    "cholesky": (lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3)), ["3 3"]),
    "eigvalsh": (lambda x: torch.linalg.eigvalsh(x + x.mT), ["3 3"]),
    "fft": (torch.fft.rfft, ["6"]),
    "conv1d": (nn.conv1d, ["1 2 5", "3 2 3", "3"]),
    "max_pool1d": (lambda x: nn.max_pool1d(x, 2), ["1 2 6"]),
    "layer_norm": (lambda x, w, b: nn.layer_norm(x, (3,), w, b), ["4 3", "3", "3"]),
    "batch_norm": (lambda x: nn.batch_norm(x, None, None, training=True), ["4 3"]),
    "cross_entropy": (lambda x: nn.cross_entropy(x, torch.tensor([1, 0, 2])), ["3 4"]),
    "embedding": (lambda w: nn.embedding(torch.tensor([0, 2, 2]), w), ["4 2"]),
    "grid_sample": (
        lambda x, g: nn.grid_sample(x, g, align_corners=False),
        ["1 1 3 3", "1 2 2 2"],
    ),
}


@pytest.fixture
def arguments(normal):
    """Draw the operands that a recipe names: ``"4 3"`` of any sign, ``"+5"`` positive."""

    def draw(recipes):
        drawn = []
        for seed, recipe in enumerate(recipes):
            values = normal(*map(int, recipe.strip("+").split()), seed=seed, requires_grad=False)
            positive = recipe.startswith("+")
            drawn.append((values.abs() + 0.5 if positive else values).requires_grad_())
        return drawn

    return draw


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_of_torch_is_not_accused(check, arguments, name):
    candidate, recipes = OPERATORS[name]

    alone = check(candidate, arguments(recipes))
    beside_itself = check(candidate, arguments(recipes), reference=candidate)

    assert [issue.rule for issue in (*alone.issues, *beside_itself.issues)] == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["div", "gelu", "softmax", "var", "matmul", "layer_norm"])
def test_an_operator_of_torch_is_not_accused_in_low_precision(check, arguments, name, dtype):
    candidate, recipes = OPERATORS[name]
    low = [x.detach().to(dtype).requires_grad_() for x in arguments(recipes)]

    assert [issue.rule for issue in check(candidate, low).issues] == []
