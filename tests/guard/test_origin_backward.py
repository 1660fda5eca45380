"""The first bad number of a step is born in a derivative: node, owning line, hidden value."""

import inspect
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

PROGRAMS = []


def program(op, step, *, sample=None, module=None, hidden=False):
    """Note a faulty program; the line that owns the derivative ends in ``# born``."""

    def note(function):
        expected = (op, step, sample, module, hidden)
        PROGRAMS.append(pytest.param(function, expected, id=function.__name__))
        return function

    return note


def line_of(function):
    lines, first = inspect.getsourcelines(function)
    return next(
        first + index for index, line in enumerate(lines) if line.rstrip().endswith("# born")
    )


def fit(model, loss, batches, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-3)
    for batch in batches:
        optimizer.zero_grad()
        loss(model, *batch).backward()
        optimizer.step()


def pairs(steps=5, size=8, width=6):
    return [(torch.randn(size, width), torch.randint(0, 3, (size,))) for _ in range(steps)]


class Scaled(nn.Module):
    """Multiplies by a learnt weight, so that zeros in give zeros out and a gradient flows."""

    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))
        self.head = nn.Linear(6, 3)
        self.function = function

    def forward(self, x):
        return self.head(self.function(self.weight * x))


@program("SqrtBackward0", 2, sample=0)
def distance_of_equal_pairs():
    def loss(model, left, right):
        squares = (model(left) - model(right)).square().sum(-1)
        return squares.sqrt().mean()  # born

    batches = [(torch.randn(6, 4), torch.randn(6, 4)) for _ in range(5)]
    batches[2][1][0] = batches[2][0][0]
    fit(nn.Linear(4, 3), loss, batches)


@program("LogBackward0", 1, sample=3, module="", hidden=True)
def logarithm_in_the_branch_not_taken():
    def masked(h):
        return torch.where(h > 0, torch.log(h), torch.zeros_like(h))  # born

    batches = [(x.abs() + 0.1, y) for x, y in pairs()]
    batches[1][0][3, 2] = 0.0
    fit(Scaled(masked), lambda m, x, y: F.cross_entropy(m(x), y), batches)


@program("SqrtBackward0", 2, sample=1, module="", hidden=True)
def root_of_a_negative_number_in_the_branch_not_taken():
    def signed(h):
        return torch.where(h > 0, torch.sqrt(h), h)  # born

    batches = [(x.abs() + 0.1, y) for x, y in pairs()]
    batches[2][0][1, 4] = -3.0
    fit(Scaled(signed), lambda m, x, y: F.cross_entropy(m(x), y), batches)


@program("ExpBackward0", 1, sample=5, module="", hidden=True)
def softplus_by_hand():
    def softplus(h):
        small = torch.exp(h)  # born
        return torch.where(h > 20, h, torch.log1p(small))

    batches = pairs()
    batches[1][0][5, 0] = 200.0
    fit(Scaled(softplus), lambda m, x, y: F.cross_entropy(m(x), y), batches)


@program("AcosBackward0", 3, sample=2)
def angle_of_a_perfect_prediction():
    def loss(model, x, target):
        cosine = (F.normalize(model(x), dim=-1) * target).sum(-1).clamp(-1, 1)
        return torch.acos(cosine).mean()  # born

    model = nn.Linear(6, 3, bias=False)
    with torch.no_grad():
        model.weight.zero_()
        model.weight[:3, :3] = torch.eye(3)
    batches = [(x, F.normalize(torch.randn(8, 3), dim=-1)) for x, _ in pairs()]
    batches[3][0][2] = torch.tensor([1.0, 0, 0, 0, 0, 0])
    batches[3][1][2] = torch.tensor([1.0, 0, 0])
    fit(model, loss, batches, torch.optim.SGD([nn.Parameter(torch.ones(1)), model.weight], 0.0))


@program("PowBackward0", 1, sample=4, module="")
def fractional_power_of_zero():
    def root(h):
        return h**0.5  # born

    batches = [(x.abs() + 0.1, y) for x, y in pairs()]
    batches[1][0][4] = 0.0
    fit(Scaled(root), lambda m, x, y: F.cross_entropy(m(x), y), batches)


@program("BadBackward", 1, sample=0, module="")
def a_derivative_written_by_hand():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad / x.abs().sign().sum(-1, keepdim=True) * 6  # born

    batches = pairs()
    batches[1][0].zero_()
    fit(Scaled(Bad.apply), lambda m, x, y: F.cross_entropy(m(x), y), batches)


@program("LogBackward0", 2, sample=1, module="block", hidden=True)
def recomputed_by_checkpointing():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(6))

        def forward(self, x):
            h = self.weight * x
            return torch.where(h > 0, torch.log(h), torch.zeros_like(h))  # born

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(checkpoint(self.block, x, use_reentrant=False))

    batches = [(x.abs() + 0.1, y) for x, y in pairs()]
    batches[2][0][1, 2] = 0.0
    fit(Net(), lambda m, x, y: F.cross_entropy(m(x), y), batches)


@program("SqrtBackward0", 2, sample=0)
def gradient_penalty_in_a_double_backward():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for step, (x, _) in enumerate(pairs()):
        optimizer.zero_grad()
        x.requires_grad_()
        score = model(x)
        (slope,) = torch.autograd.grad(score.sum() * float(step != 2), x, create_graph=True)
        length = (slope * slope).sum(-1)
        penalty = ((length.sqrt() - 1) ** 2).mean()  # born
        (score.mean() + penalty).backward()
        optimizer.step()


@program("SqrtBackward0", 1, sample=0)
def in_a_closure():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=2)
    for step in range(3):
        left, right = torch.randn(5, 4), torch.randn(5, 4)
        if step == 1:
            right[0] = left[0]

        def closure(left=left, right=right):
            optimizer.zero_grad()
            squares = (model(left) - model(right)).square().sum(-1)
            loss = squares.sqrt().mean()  # born
            loss.backward()
            return loss

        optimizer.step(closure)


@program("SqrtBackward0", 2, sample=3)
def the_second_of_two_optimizers():
    body, head = nn.Linear(6, 4), nn.Linear(6, 4)
    pair = [torch.optim.SGD(part.parameters(), 0.01) for part in (body, head)]
    for step, (x, _) in enumerate(pairs()):
        for optimizer in pair:
            optimizer.zero_grad()
        body(x).square().mean().backward()
        distance = (head(x) - head(x + float(step != 2))).square().sum(-1)
        distance = torch.cat([distance[:3] + 1.0, distance[3:]])
        distance.sqrt().mean().backward()  # born
        for optimizer in pair:
            optimizer.step()


@program("MulBackward0", 1, sample=0, module="")
def overflow_of_a_half_precision_gradient():
    class Steep(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, x, scale):
            return self.net(x) * scale  # born

    batches = [
        (x.half() * 1e-3, torch.tensor(3e4 if i == 1 else 1.0).half())
        for i, (x, _) in enumerate(pairs())
    ]
    fit(Steep().half(), lambda m, x, s: (m(x, s).float() * 1e3).mean(), batches)


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_derivative_and_its_owner_are_named(issues_of, run, expected):
    torch.manual_seed(0)
    op, step, sample, module, hidden = expected
    (issue,) = [issue for issue in issues_of(run) if issue.rule.startswith("NUM10")]
    where = issue.where
    assert (issue.rule, issue.phase, where.op) == ("NUM102", "backward", op), issue.message
    assert issue.step == step
    assert where.line == line_of(run), issue.message
    assert where.sample == sample, issue.message
    assert where.module == module
    assert ("hidden_value" in issue.evidence) == hidden
    assert math.isfinite(issue.evidence["loss"])
