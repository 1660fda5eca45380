"""AUD203 and AUD204: layers and parameters that are made anew in each step."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def fit(model, parameters, steps=8):
    optimizer = torch.optim.Adam(parameters, 1e-2)
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        optimizer.step()


class HeadInForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)

    def forward(self, x):
        hidden = self.body(x).relu()
        return nn.Linear(hidden.shape[1], 3)(hidden)


class BlockInHelper(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

    def widen(self, hidden):
        block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        return block(hidden)

    def forward(self, x):
        return self.head(self.widen(self.body(x)))


class Lazy(HeadInForward):
    """Makes its head at the first call."""

    def __init__(self):
        super().__init__()
        self.head = None

    def forward(self, x):
        hidden = self.body(x).relu()
        if self.head is None:
            self.head = nn.Linear(hidden.shape[1], 3).requires_grad_(False)
        return self.head(hidden)


class NormInForward(BlockInHelper):
    """A normalisation that is made anew scales by one and shifts by zero, as is meant."""

    def widen(self, hidden):
        return nn.LayerNorm(hidden.shape[-1])(hidden)


@pytest.mark.parametrize("kind", [HeadInForward, BlockInHelper])
def test_a_layer_that_is_made_in_forward(audited, kind):
    model = kind()
    issues = audited(lambda: fit(model, model.parameters()))

    found = [(issue.rule, issue.severity.label) for issue in issues]
    assert found[-1] == ("AUD203", "high")
    assert {level for rule, level in found if rule != "AUD203"} <= {"info"}
    assert "Linear with random parameters" in issues[-1].message


@pytest.mark.parametrize("kind", [Lazy, NormInForward])
def test_a_layer_that_is_made_once_or_draws_nothing(audited, kind):
    model = kind()
    assert audited(lambda: fit(model, model.parameters())) == []


def test_a_probe_of_its_own_in_each_epoch(audited):
    def program():
        body, head = nn.Linear(6, 8), nn.Linear(8, 3)
        for _ in range(4):
            fit(nn.Sequential(body, head), [*body.parameters(), *head.parameters()], steps=3)
            probe = nn.Linear(8, 3)
            fit(lambda x, probe=probe: probe(body(x).detach()), probe.parameters(), steps=3)

    assert "AUD203" not in [issue.rule for issue in audited(program)]


class Hyper(nn.Module):
    """The weights of its last layer are computed."""

    def __init__(self, wrap):
        super().__init__()
        self.code, self.make = nn.Parameter(torch.randn(4)), nn.Linear(4, 24)
        self.body, self.wrap = nn.Linear(6, 8), wrap

    def forward(self, x):
        weight = self.wrap(self.make(self.code).view(3, 8))
        return F.linear(self.body(x).relu(), weight)


def functional(wrap):
    make, code, body = nn.Linear(4, 24), torch.randn(4), nn.Linear(6, 8)
    parameters = [*make.parameters(), *body.parameters()]
    fit(lambda x: F.linear(body(x).relu(), wrap(make(code).view(3, 8))), parameters)


def in_a_module(wrap):
    model = Hyper(wrap)
    fit(model, model.parameters())


@pytest.mark.parametrize("program", [functional, in_a_module])
def test_computed_weights_that_are_made_a_parameter(audited, program):
    issues = audited(lambda: program(nn.Parameter))
    assert [(issue.rule, issue.severity.label) for issue in issues] == [("AUD204", "high")]
    assert "made a new nn.Parameter" in issues[0].message
    assert issues[0].where.line is not None

    assert audited(lambda: program(torch.Tensor.contiguous)) == []


def test_a_parameter_that_starts_from_another_one(audited):
    def program():
        base, head = nn.Linear(6, 8), nn.Linear(6, 3)
        start = nn.Parameter(base.weight[:3] * 0.5)
        fit(lambda x: head(x) + x @ start.T, [*base.parameters(), *head.parameters(), start])

    assert all(issue.severity.label == "info" for issue in audited(program))
