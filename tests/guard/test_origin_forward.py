"""The first bad number of a step is born in the forward pass, or in the loss: op, line, sample."""

import inspect
import math
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

PROGRAMS = []


@dataclass(frozen=True)
class Expected:
    """What the one verdict on a program must say."""

    rule: str
    phase: str
    op: str
    step: int
    sample: int | None = None
    module: str | None = None


def program(*facts, **named):
    """Note a faulty program; the line that makes the first bad number ends in ``# born``."""

    def note(function):
        PROGRAMS.append(pytest.param(function, Expected(*facts, **named), id=function.__name__))
        return function

    return note


def line_of(function, mark="# born"):
    lines, first = inspect.getsourcelines(function)
    found = [first + index for index, line in enumerate(lines) if line.rstrip().endswith(mark)]
    return found[0] if found else None


def fit(model, loss, batches, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-3)
    for batch in batches:
        optimizer.zero_grad()
        loss(model, *batch).backward()
        optimizer.step()


def pairs(steps=5, size=8, width=6):
    return [(torch.randn(size, width), torch.randint(0, 3, (size,))) for _ in range(steps)]


@program("NUM101", "forward", "exp", 3, sample=0, module="gate")
def softmax_by_hand():
    class Gate(nn.Module):
        def forward(self, x):
            weights = torch.exp(x)  # born
            return weights / weights.sum(-1, keepdim=True)

    model = nn.Sequential()
    model.add_module("inner", nn.Linear(6, 3))
    model.add_module("gate", Gate())
    batches = pairs()
    batches[3] = (batches[3][0].fill_(1.0) * 4000.0, batches[3][1])
    with torch.no_grad():
        model[0].weight.fill_(0.5)
    fit(model, lambda m, x, y: F.nll_loss(m(x), y), batches)


@program("NUM101", "forward", "_softmax", 2, sample=5, module="")
def attention_over_nothing():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = nn.Linear(6, 4)

        def forward(self, x, hidden):
            scores = self.scores(x).masked_fill(hidden, -math.inf)
            return scores.softmax(-1)  # born

    batches = [(*pair, torch.zeros(8, 4, dtype=torch.bool)) for pair in pairs()]
    batches[2][2][5] = True
    fit(Attention(), lambda m, x, y, h: F.nll_loss(m(x, hidden=h), y), batches)


@program("NUM101", "forward", "log", 1, sample=2, module="")
def logarithm_next_to_intended_infinities():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, x):
            masked = self.net(x).masked_fill(torch.eye(3).bool()[0], -math.inf)
            return masked.softmax(-1) + torch.log(x[:, :1])  # born

    batches = [(x.abs() + 0.1, y) for x, y in pairs()]
    batches[1][0][2, 0] = 0.0
    fit(Mixed(), lambda m, x, y: F.cross_entropy(m(x), y), batches)


@program("NUM101", "forward", "mul", 2, sample=0, module="")
def half_precision_product():
    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(6, 16, bias=False)
            self.down = nn.Linear(16, 3, bias=False)

        def forward(self, x):
            hidden = self.up(x)
            return self.down(hidden * hidden)  # born

    batches = [(x.half() * (2000.0 if i == 2 else 1.0), y) for i, (x, y) in enumerate(pairs())]
    fit(Square().half(), lambda m, x, y: F.cross_entropy(m(x).float(), y), batches)


@program("NUM101", "forward", "mean", 2, sample=1, module="norm")
def an_infinity_that_the_next_op_swallows():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(6))

        def forward(self, x):
            scale = x.pow(2).mean(-1, keepdim=True)  # born
            return x * scale.rsqrt() * self.weight / scale.rsqrt().clamp(min=0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Norm()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.norm(x))

    batches = pairs()
    batches[2][0][1] = 1.2e19
    fit(Net(), lambda m, x, y: F.cross_entropy(m(x), y), batches)


@program("NUM101", "forward", "div", 1, sample=4, module="body.1")
def inside_a_checkpointed_block():
    class Ratio(nn.Module):
        def forward(self, x):
            return x / x.sum(-1, keepdim=True)  # born

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.ModuleList([nn.Linear(6, 6, bias=False), Ratio(), nn.Linear(6, 3)])

        def forward(self, x):
            hidden = self.body[0](x)
            return self.body[2](checkpoint(self.body[1], hidden, use_reentrant=False))

    batches = pairs()
    batches[1][0][4] = 0.0
    fit(Net(), lambda m, x, y: F.cross_entropy(m(x), y), batches)


@program("NUM101", "forward", "reciprocal", 1, sample=3, module="")
def inside_a_custom_function():
    class Inverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = x.reciprocal()  # born
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, grad):
            (out,) = ctx.saved_tensors
            return -grad * out * out

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(Inverse.apply(x))

    batches = [(x.abs() + 0.5, y) for x, y in pairs()]
    batches[1][0][3] = 0.0
    fit(Net(), lambda m, x, y: F.cross_entropy(m(x), y), batches)


@program("NUM101", "forward", "sqrt", 2, sample=6, module="")
def loss_inside_the_model_and_outputs_in_a_dictionary():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, inputs, labels=None):
            logits = self.net(inputs)
            spread = torch.sqrt(inputs.sum(-1))  # born
            return {"logits": logits, "loss": F.cross_entropy(logits, labels) + spread.mean()}

    batches = [(x.abs(), y) for x, y in pairs()]
    batches[2][0][6] = -1.0
    fit(Model(), lambda m, x, y: m(inputs=x, labels=y)["loss"], batches)


@program("NUM103", "loss", "log", 2, sample=7)
def logarithm_of_a_saturated_probability():
    def loss(model, x, y):
        chance = torch.sigmoid(model(x)).squeeze(-1)
        return -(y * chance.log() + (1 - y) * torch.log1p(-chance)).mean()  # born

    model = nn.Linear(6, 1)
    with torch.no_grad():
        model.weight.fill_(1.0)
    batches = [(x, (y > 0).float()) for x, y in pairs()]
    batches[2][0][7] = -100.0
    fit(model, loss, batches)


@program("NUM103", "loss", "nll_loss_forward", 2)
def every_label_ignored():
    def loss(model, x, y):
        return F.cross_entropy(model(x), y)  # born

    batches = pairs()
    batches[2][1].fill_(-100)
    fit(nn.Linear(6, 3), loss, batches)


@program("NUM103", "loss", "div", 3)
def mean_over_an_empty_mask():
    def loss(model, x, y):
        wanted = y == 0
        errors = (model(x)[:, 0] - 1.0) ** 2
        return (errors * wanted).sum() / wanted.sum()  # born

    batches = pairs()
    batches[3][1].fill_(1)
    for _, y in batches[:3]:
        y[0] = 0
    fit(nn.Linear(6, 3), loss, batches)


@program("NUM103", "loss", "sum", 0)
def sum_in_half_precision():
    def loss(model, x, y):
        errors = (model(x) - 100.0) ** 2
        return errors.sum() / errors.numel()  # born

    fit(nn.Linear(6, 64).half(), loss, [(x.half(), y) for x, y in pairs(2)])


@program("NUM103", "loss", "nll_loss_forward", 1)
def a_criterion_that_is_a_module():
    criterion = nn.CrossEntropyLoss(ignore_index=9)
    batches = pairs(3)
    batches[1][1].fill_(9)
    fit(nn.Linear(6, 3), lambda m, x, y: criterion(m(x), y), batches)  # born


@program("NUM103", "loss", "reciprocal", 2)
def one_of_two_loss_terms():
    class Trainer:
        def __init__(self):
            self.model = nn.Linear(6, 3)
            self.optimizer = torch.optim.Adam(self.model.parameters())

        def penalty(self, x):
            return 1.0 / x.abs().sum()  # born

        def run(self, batches):
            for x, y in batches:
                self.optimizer.zero_grad(set_to_none=False)
                main = F.cross_entropy(self.model(x), y)
                (main + 0.1 * self.penalty(x)).backward()
                self.optimizer.step()

    batches = pairs()
    batches[2][0].zero_()
    Trainer().run(batches)


@program("NUM101", "forward", "log", 1, sample=2)
def a_model_without_modules():
    weight = torch.randn(6, 3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 1e-3)
    for step, (x, y) in enumerate(pairs()):
        x = x.abs() + 0.1
        if step == 1:
            x[2] = 0.0
        optimizer.zero_grad()
        hidden = torch.log(x)  # born
        F.cross_entropy(hidden @ weight, y).backward()
        optimizer.step()


@program("NUM101", "forward", "exp", 2, sample=0, module="cell")
def inside_a_recurrence():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 6)

        def forward(self, x, state):
            return torch.exp(self.net(x) + state)  # born

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = Cell()
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            state = torch.zeros_like(x)
            for _ in range(3):
                state = self.cell(x, state)
            return self.head(state)

    batches = [(x * 0.1, y) for x, y in pairs()]
    batches[2] = (torch.full((8, 6), 30.0), batches[2][1])
    fit(Recurrent(), lambda m, x, y: F.cross_entropy(m(x), y), batches)


@program("NUM101", "forward", "pow", 1, sample=0, module="")
def the_second_micro_batch_of_a_step():
    class Power(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, x):
            return self.net(x**20)  # born

    model = Power()
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    batches = [(x.clamp(-1, 1), y) for x, y in pairs(6)]
    batches[3][0][0] = 1e3
    for index, (x, y) in enumerate(batches):
        (F.cross_entropy(model(x), y) / 2).backward()
        if index % 2:
            optimizer.step()
            optimizer.zero_grad()


@program("NUM101", "forward", "div", 1, sample=4, module="")
def a_compiled_model():
    class Ratio(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, x):
            return self.net(x / x.sum(-1, keepdim=True))  # born

    batches = pairs(3)
    batches[1][0][4] = 0.0
    compiled = torch.compile(Ratio(), backend="eager")
    fit(compiled, lambda m, x, y: F.cross_entropy(m(x), y), batches)


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_first_bad_number_is_named(issues_of, run, expected):
    torch.manual_seed(0)
    (issue,) = [issue for issue in issues_of(run) if issue.rule.startswith("NUM10")]
    where = issue.where
    assert (issue.rule, issue.phase, where.op) == (expected.rule, expected.phase, expected.op)
    assert issue.step == expected.step
    assert where.line == line_of(run), issue.message
    assert where.file.endswith("test_origin_forward.py")
    assert where.sample == expected.sample
    if expected.rule == "NUM101":
        assert where.module == expected.module
