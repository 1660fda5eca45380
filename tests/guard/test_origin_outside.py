"""Births outside of model, loss and derivative: data, parameters, buffers, the optimizer."""

import inspect
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

PROGRAMS = []


def program(rule, phase, step, **place):
    """Note a faulty program; ``# born`` ends the line that made the value, if it is seen."""

    def note(function):
        expected = (rule, phase, step, place)
        PROGRAMS.append(pytest.param(function, expected, id=function.__name__))
        return function

    return note


def line_of(function):
    lines, first = inspect.getsourcelines(function)
    found = [first + i for i, line in enumerate(lines) if line.rstrip().endswith("# born")]
    return found[0] if found else None


def fit(model, batches, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-3)
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def pairs(steps=5, size=8, width=6):
    return [(torch.randn(size, width), torch.randint(0, 3, (size,))) for _ in range(steps)]


@program("NUM104", "data", 2, op="input", parameter="argument 0", sample=7, column=3)
def a_sample_of_the_batch():
    batches = pairs()
    batches[2][0][7, 3] = math.nan
    fit(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), batches)


@program("NUM104", "data", 1, op="input", parameter="argument 0", sample=2, column=5)
def an_infinite_sample():
    batches = pairs()
    batches[1][0][2, 5] = math.inf
    fit(nn.Linear(6, 3), batches)


@program("NUM104", "data", 3, op="input", parameter="argument 0", sample=4, column=1)
def an_infinity_that_an_activation_bounds():
    batches = pairs()
    batches[3][0][4, 1] = math.inf
    fit(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), batches)


@program("NUM104", "data", 3, op="div", sample=0)
def standardised_in_the_loop():
    model = nn.Linear(6, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    for step, (x, y) in enumerate(pairs()):
        if step == 3:
            x[:, 4] = 0.25
        x = (x - x.mean(0)) / x.std(0)  # born
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program("NUM104", "data", 2, op="input", sample=1, column=0)
def the_target():
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, (x, _) in enumerate(pairs()):
        target = torch.ones(8, 3)
        if step == 2:
            target[1, 0] = math.nan
        optimizer.zero_grad()
        F.mse_loss(model(x), target).backward()
        optimizer.step()


@program("NUM104", "data", 1, op="input", parameter="mask['weight']", sample=3)
def a_tensor_in_a_nested_argument():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)

        def forward(self, x, mask):
            return self.net(x) * mask["weight"][:, None]

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, (x, y) in enumerate(pairs()):
        weight = torch.ones(8)
        if step == 1:
            weight[3] = math.nan
        optimizer.zero_grad()
        F.cross_entropy(model(x, mask={"weight": weight}), y).backward()
        optimizer.step()


@program("NUM105", "parameter", 2, parameter="scale")
def a_buffer_written_by_hand():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x):
            return self.net(x) * self.scale

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, (x, y) in enumerate(pairs()):
        if step == 2:
            model.scale[1] = math.nan
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program("NUM105", "parameter", 1, parameter="0.weight")
def a_frozen_parameter():
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[1].parameters(), 0.1)
    for step, (x, y) in enumerate(pairs()):
        if step == 1:
            with torch.no_grad():
                model[0].weight[2, 2] = math.nan
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program("NUM105", "optimizer", 0, op="Adam.step", parameter="0.weight")
def half_precision_eps():
    model = nn.Sequential(nn.Embedding(8, 4), nn.Flatten(), nn.Linear(8, 3)).half()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(3):
        index = torch.randint(0, 4, (16, 2))
        optimizer.zero_grad()
        F.cross_entropy(model(index).float(), index[:, 0] % 3).backward()
        optimizer.step()


@program("NUM105", "optimizer", 2, op="SGD.step", parameter="weight")
def a_learning_rate_that_is_not_a_number():
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, (x, y) in enumerate(pairs()):
        if step == 2:
            optimizer.param_groups[0]["lr"] = math.nan
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_what_was_there_before_is_named(issues_of, run, expected):
    torch.manual_seed(0)
    rule, phase, step, place = expected
    (issue,) = [issue for issue in issues_of(run) if issue.rule.startswith("NUM10")]
    where = issue.where
    assert (issue.rule, issue.phase, issue.step) == (rule, phase, step), issue.message
    column = place.pop("column", None)
    assert where.sample == place.pop("sample", None)
    assert {name: getattr(where, name) for name in place} == place
    if column is not None:
        assert issue.evidence["column"] == column
    if line_of(run) is not None:
        assert where.line == line_of(run), issue.message
