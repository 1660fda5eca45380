"""Losses that oppose each other: what is a fault, and what is meant so."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla
from nabla_core.severity import Severity

FAULTS, DESIGNS = {}, {}


def fault(make):
    FAULTS[make.__name__] = make


def design(make):
    DESIGNS[make.__name__] = make


def inputs(rows=32):
    return torch.randn(rows, 4)


@fault
def negative(model):
    loss = model(inputs()).square().mean()
    return {"a": 3 * loss, "b": -loss}


@fault
def contradictory_values(model):
    out, target = model(inputs()), torch.ones(32, 2)
    return {"a": F.mse_loss(out, target), "b": F.smooth_l1_loss(out, -target)}


@fault
def contradictory_classes(model):
    out, labels = model(inputs()), torch.randint(2, (32,))
    return {"a": F.cross_entropy(out, labels), "b": F.cross_entropy(out, 1 - labels)}


@fault
def residual_that_is_not_detached(model):
    # the second output has learnt to be twice the residual, the first is far from the data
    out, x = model(inputs()), torch.ones(32) * 3
    residual = x - out[:, 0]
    return {"a": residual.square().mean(), "b": (out[:, 1] + 9 - residual).square().mean()}


@design
def critic(model):
    return {"real": -model(inputs() + 1)[:, 0].mean(), "fake": model(inputs())[:, 0].mean()}


@design
def critic_of_one_batch(model):
    out = model(torch.cat([inputs() + 1, inputs()]))[:, 0]
    wanted = torch.ones(32)
    judge = F.binary_cross_entropy_with_logits
    return {"real": judge(out[:32], wanted), "fake": judge(out[32:], 0 * wanted)}


@design
def penalty_on_what_fits(model):
    out = 3 * model(inputs())
    return {"fit": F.mse_loss(out, 2 * out.detach()), "small": out.square().mean()}


@design
def weights_at_their_compromise(model):
    out = model(inputs()) + 10
    return {"a": F.mse_loss(out, out.detach() + 1), "b": F.mse_loss(out, out.detach() - 0.98)}


@pytest.fixture
def found():
    def trace(make):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        issues = nabla.trace.losses(make(model), parameters=model).issues
        return [issue for issue in issues if issue.rule == "GEO101"]

    return trace


@pytest.mark.parametrize("name", FAULTS)
def test_what_no_training_resolves_is_a_finding(name, found):
    (issue,) = found(FAULTS[name])

    assert issue.severity is Severity.MEDIUM


@pytest.mark.parametrize("name", DESIGNS)
def test_opposition_by_design_is_information(name, found):
    (issue,) = found(DESIGNS[name])

    assert issue.severity is Severity.INFO


@pytest.mark.parametrize(
    ("value", "severity"),
    [(lambda out: F.relu(out.mean() - 9), Severity.INFO), (lambda out: out.round().mean(), "LOW")],
)
def test_a_margin_that_is_kept_has_no_gradient_on_purpose(value, severity):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    out = 5 * model(inputs())
    (issue,) = nabla.trace.losses({"a": out.square().mean(), "b": value(out)}, model).issues

    assert issue.rule == "GEO105"
    assert issue.severity is (Severity.LOW if severity == "LOW" else severity)


@pytest.mark.parametrize(("penalty", "severity"), [(False, Severity.LOW), (True, Severity.INFO)])
def test_a_small_penalty_is_small_on_purpose(penalty, severity):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    out = model(inputs())
    small = (
        1e-4 * model.weight.square().mean() if penalty else F.mse_loss(out[:, 1], torch.ones(32))
    )
    given = {"fit": 1000 * F.mse_loss(out[:, 0], torch.ones(32)), "small": small}
    found = [i for i in nabla.trace.losses(given, model).issues if i.rule == "GEO103"]

    assert [issue.severity for issue in found] == [severity]
