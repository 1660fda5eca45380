"""Wrong numbers behind a finite loss: each is found, and its healthy twin is not."""

import inspect
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_core.severity import Severity
from nabla_guard import guard

DEFECTS = []
TWINS = []


@dataclass(frozen=True)
class Expected:
    """What the first verdict on a program must say."""

    rule: str
    ops: tuple[str, ...]
    module: str | None = "f"


def defect(rule, *ops, module="f"):
    """Note a wrong function; its twin is the argument of the decorated one."""

    def note(function):
        expected = Expected(rule, ops, module)
        DEFECTS.append(pytest.param(function, expected, id=function.__name__))
        TWINS.append(pytest.param(function, id=function.__name__))
        return function

    return note


class Layer(nn.Module):
    """A function of the user's as a module."""

    def __init__(self, function, stable):
        super().__init__()
        self.function, self.stable = function, stable

    def forward(self, x):
        return self.function(x, self.stable)


class Net(nn.Module):
    """Data that no layer has touched, the function, and a head that is trained."""

    def __init__(self, function, stable, width):
        super().__init__()
        self.f = Layer(function, stable)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.f(x).float())


def numeric_issues(monitor):
    return [
        issue
        for issue in monitor.report().issues
        if issue.rule.startswith("NUM") and issue.severity >= Severity.LOW
    ]


def watched(function, stable):
    torch.manual_seed(0)
    sample = function.data()
    width = function(sample, stable).shape[-1]
    model = Net(function, stable, width)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    monitor = guard(model, optimizer=optimizer, shadow="always")
    with monitor:
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(sample), torch.zeros(len(sample), dtype=torch.long))
            assert loss.isfinite()
            loss.backward()
            optimizer.step()
    return numeric_issues(monitor)


def on(make):
    """Say what data a function is given."""

    def note(function):
        function.data = make
        return function

    return note


@defect("NUM122", "sub")
@on(lambda: (torch.randn(16, 64) * 0.1 + 20).bfloat16())
def variance_of_squares_bf16(x, stable):
    if stable:
        var = x.var(-1, keepdim=True, correction=0)
    else:
        var = (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(var.abs() + 1e-6)


@defect("NUM122", "sub")
@on(lambda: torch.randn(16, 64) + 3000)
def variance_of_squares_fp32(x, stable):
    if stable:
        return (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)
    return (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2


@defect("NUM121", "log")
@on(lambda: torch.randn(16, 8) * 5 - torch.arange(8.0) * 40)
def log_of_softmax(x, stable):
    return x.log_softmax(-1) if stable else (x.softmax(-1) + 1e-45).log()


@defect("NUM112", "sigmoid")
@on(lambda: torch.full((16, 4), -120.0) + torch.randn(16, 4))
def sigmoid_then_log(x, stable):
    return F.logsigmoid(x) if stable else torch.sigmoid(x).clamp(min=1e-45).log()


@defect("NUM121", "log")
@on(lambda: torch.rand(16, 4) * -5 - 18)
def softplus_by_hand(x, stable):
    return F.softplus(x) if stable else torch.log(1 + x.exp())


@defect("NUM122", "rsub", "sub")
@on(lambda: torch.rand(16, 4) * 1e-3 + 1e-4)
def one_minus_cosine(x, stable):
    return 2 * (x / 2).sin().square() if stable else 1 - x.cos()


@defect("NUM122", "sub")
@on(lambda: torch.rand(16, 4) * 1e-5 + 1e-6)
def expm1_by_hand(x, stable):
    return x.expm1() if stable else x.exp() - 1


@defect("NUM121", "log")
@on(lambda: torch.rand(16, 4) * 1e-6 + 1e-7)
def log1p_by_hand(x, stable):
    return x.log1p() if stable else (1 + x).log()


@defect("NUM112", "mul", "square", "pow")
@on(lambda: (torch.rand(16, 4) * 1e-4 + 1e-5).half())
def norm_of_tiny_values(x, stable):
    if stable:
        return torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return (x * x).sum(-1, keepdim=True).sqrt()


@defect("NUM112", "mul", "square", "pow")
@on(lambda: (torch.rand(16, 4) * 1e-4 + 1e-5).half())
def hypot_by_hand(x, stable):
    a, b = x[:, :2], x[:, 2:]
    return torch.hypot(a, b) if stable else (a * a + b * b).sqrt()


@defect("NUM121", "add", "add_")
@on(lambda: torch.rand(4, 1200).bfloat16() + 0.5)
def running_sum_in_bf16(x, stable):
    total = torch.zeros(len(x), 1, dtype=torch.float32 if stable else x.dtype)
    for column in x.split(1, dim=1):
        total = total + column
    return total.to(x.dtype)


@defect("NUM122", "sub")
@on(lambda: torch.randn(16, 4))
def large_shift_taken_back(x, stable):
    shift = 0.0 if stable else 3e5
    return (x + shift) - shift


@defect("NUM121", "exp")
@on(lambda: torch.randn(16, 4) * 2 + 95)
def scores_with_hidden_overflow(x, stable):
    if stable:
        return (x - x.amax(-1, keepdim=True)).exp()
    weights = x.exp().nan_to_num(posinf=1e38)
    return weights / weights.amax(-1, keepdim=True)


@defect("NUM121", "sum")
@on(lambda: (torch.rand(8, 4096) * 30 + 20).half())
def mean_of_clamped_fp16_sums(x, stable):
    if stable:
        return x.mean(-1, keepdim=True)
    return x.sum(-1, keepdim=True).nan_to_num(posinf=65504.0) / x.shape[-1]


@defect("NUM122", "rsub", "sub")
@on(lambda: torch.rand(16, 8) * 1e-6 + 1e-7)
def log_of_one_minus_exp(x, stable):
    return (-torch.expm1(-x)).log() if stable else (1 - (-x).exp()).log()


@defect("NUM122", "add", "sub")
@on(lambda: torch.randn(16, 6) + torch.tensor(5e3))
def squared_distance_by_expansion(x, stable):
    a, b = x[:, :3], x[:, 3:]
    if stable:
        return (a - b).square().sum(-1, keepdim=True)
    return (a * a).sum(-1, keepdim=True) + ((b * b) - 2 * a * b).sum(-1, keepdim=True)


@pytest.mark.parametrize(("function", "expected"), DEFECTS)
def test_a_wrong_number_is_found_with_its_op_and_line(function, expected):
    issues = watched(function, stable=False)

    assert issues, "nothing was found"
    first = issues[0]
    assert first.rule == expected.rule, first.message
    assert first.where.op in expected.ops, first.message
    assert first.where.module == expected.module
    lines, start = inspect.getsourcelines(function)
    assert start <= first.where.line < start + len(lines)
    assert len({(issue.rule, issue.where.op) for issue in issues}) == 1


@pytest.mark.parametrize("function", TWINS)
def test_the_stable_form_is_not_reported(function):
    assert watched(function, stable=True) == []


@pytest.mark.parametrize(("bias", "found"), [(-3.0, ["NUM112"]), (3.0, [])])
def test_a_likelihood_that_is_multiplied_together_is_flushed(bias, found):
    """Its derivative is as small as the product itself: the loss does not only look wrong."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    nn.init.constant_(model.bias, bias)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    with guard(shadow="always") as monitor:
        loss = -(model(torch.randn(14, 6) * 0.1).sigmoid().prod() * 1e25)
        loss.backward()
        optimizer.step()

    assert [issue.rule for issue in numeric_issues(monitor)] == found
