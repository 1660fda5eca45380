"""Each contract: a breach, a healthy twin, and a case just inside its limit."""

import math

import pytest
import torch
from torch import nn

from nabla_contracts import gradient, loss, parameter, tensor, training
from nabla_core.testing import records


def rules(issues):
    return [issue.rule for issue in issues]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_breaks_the_contract(judged, value):
    (issue,) = judged(loss.finite(), records(loss=[1.0, value, 2.0]))

    assert (issue.rule, issue.step) == ("CON101", 1)


def test_a_large_finite_loss_is_finite(judged):
    assert judged(loss.finite(), records(loss=[1.0, 3e38, -3e38])) == []


@pytest.mark.parametrize(("norm", "expected"), [(10.0, []), (10.001, ["CON102"])])
def test_the_norm_is_held_against_its_maximum(judged, norm, expected):
    assert rules(judged(gradient.norm(max=10.0), records(grad_norm=[1.0, norm]))) == expected


@pytest.mark.parametrize(("norm", "expected"), [(0.1, []), (0.0999, ["CON102"])])
def test_the_norm_is_held_against_its_minimum(judged, norm, expected):
    contract = gradient.norm(min=0.1, max=1e9)

    assert rules(judged(contract, records(grad_norm=[1.0, norm]))) == expected


def test_a_norm_that_is_nan_is_outside_every_range(judged):
    assert rules(judged(gradient.norm(min=0.0), records(grad_norm=[math.nan]))) == ["CON102"]


@pytest.mark.parametrize(("last", "expected"), [(10.0, []), (10.01, ["CON105"])])
def test_the_loss_is_held_against_its_recent_level(judged, last, expected):
    contract = training.loss_not_exploding(max_ratio=10, window=5)

    found = judged(contract, records(loss=[1.0, 1.0, 1.0, last]))

    assert rules(found) == expected


def test_the_level_is_that_of_the_window_alone(judged):
    contract = training.loss_not_exploding(max_ratio=10, window=3)
    falling = [1000.0] * 5 + [1.0] * 5

    found = judged(contract, records(loss=[*falling, 11.0]))

    assert [issue.step for issue in found] == [10]
    assert found[0].evidence["level"].value == 1.0


def test_one_spike_does_not_raise_the_level(judged):
    contract = training.loss_not_exploding(max_ratio=10, window=20)

    found = judged(contract, records(loss=[1.0, 1.0, 1.0, 500.0, 1.0, 20.0]))

    assert [issue.step for issue in found] == [3, 5]


def test_a_loss_without_a_positive_level_has_no_ratio(judged):
    (issue,) = judged(training.loss_not_exploding(), records(loss=[-1.0, -1.0, 5.0]))

    assert issue.rule == "CON901"
    assert "not positive" in issue.message


def test_the_evidence_names_the_parameter_with_the_largest_gradient(loop, held):
    def scaled(step):
        if step == 2:
            loop.model[2].weight.grad.mul_(1e6)

    (issue,) = held(loop, gradient.norm(max=100.0), train=lambda: loop.train(5, None, scaled))

    assert (issue.rule, issue.step) == ("CON102", 2)
    assert issue.evidence["parameter"] == "2.weight"
    assert "2.weight" in issue.message


def test_globs_choose_the_gradients(loop, held):
    def scaled(step):
        loop.model[2].weight.grad.mul_(1e6)

    contracts = [gradient.norm(max=100.0, parameters=glob) for glob in ("0.*", "2.*")]

    found = held(loop, *contracts, train=lambda: loop.train(1, None, scaled))

    assert [issue.evidence["contract"] for issue in found] == [contracts[1].name]


class Swallow(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, x / 0.0)


def test_the_module_that_returns_an_infinity_is_named(make_loop, held):
    model = nn.Sequential(nn.Linear(6, 3), Swallow(), nn.Hardtanh())
    loop = make_loop(model)

    (issue,) = held(loop, tensor.finite(module="1"))

    assert issue.rule == "CON103"
    assert issue.evidence["module"] == "1"


def test_modules_that_the_glob_leaves_out_may_return_anything(make_loop, held):
    model = nn.Sequential(nn.Linear(6, 3), Swallow(), nn.Hardtanh())

    loop = make_loop(model)

    assert held(loop, tensor.finite(module=["0", "2"]), train=lambda: loop.train(1)) == []


def test_finite_outputs_hold(loop, held):
    assert held(loop, tensor.finite()) == []


def test_light_mode_does_not_see_outputs_and_says_so(loop, held):
    (issue,) = held(loop, tensor.finite(), mode="light")

    assert (issue.rule, issue.severity.label) == ("CON901", "info")
    assert "mode standard" in issue.message


def test_a_parameter_that_does_not_move_is_named(loop, held):
    def still(step):
        loop.model[0].bias.grad = None

    contract = parameter.change(min_relative=1e-9)

    (issue,) = held(loop, contract, train=lambda: loop.train(4, None, still))

    assert (issue.rule, issue.count) == ("CON104", 4)
    assert issue.evidence["parameter"] == "0.bias"
    assert issue.evidence["relative_change"].value == 0.0


def test_moving_parameters_hold(loop, held):
    assert held(loop, parameter.change(min_relative=1e-9)) == []


def test_the_change_is_measured_exactly(make_loop, held):
    model = nn.Linear(6, 3, bias=False)
    loop = make_loop(model, torch.optim.SGD(model.parameters(), 0.5))

    def exact(step):
        model.weight.grad.copy_(model.weight.detach())  # each step halves the weight

    inside, outside = parameter.change(max_relative=0.501), parameter.change(max_relative=0.499)

    found = held(loop, inside, outside, train=lambda: loop.train(3, None, exact))

    assert [issue.evidence["contract"] for issue in found] == [outside.name]
    assert found[0].evidence["relative_change"].value == pytest.approx(0.5, rel=1e-5)


def test_a_parameter_that_starts_at_zero_has_no_relative_change(make_loop, held):
    model = nn.Linear(6, 3)
    nn.init.zeros_(model.bias)

    loop = make_loop(model)

    assert held(loop, parameter.change(max_relative=0.5), train=lambda: loop.train(1)) == []


def test_a_step_with_a_closure_is_judged_too(make_loop, held):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    x = torch.randn(16, 6)

    def train():
        def closure():
            optimizer.zero_grad()
            value = model(x).square().mean()
            value.backward()
            return value

        for _ in range(3):
            optimizer.step(closure)

    contracts = [parameter.change(max_relative=1e-9), gradient.norm(max=1e-9)]

    found = held(make_loop(model, optimizer), *contracts, train=train)

    assert sorted({issue.rule for issue in found}) == ["CON102", "CON104"]


def test_two_optimizers_are_judged_apart(held, make_loop):
    first, second = nn.Linear(6, 3), nn.Linear(6, 3)
    both = nn.ModuleList([first, second])
    loop = make_loop(both)

    def train():
        optimizers = [torch.optim.SGD(part.parameters(), 1e-3) for part in both]
        for _ in range(6):
            for scale, part, optimizer in zip((1.0, 1e4), both, optimizers, strict=True):
                optimizer.zero_grad()
                (scale * part(torch.ones(4, 6)).square().mean().sqrt()).backward()
                optimizer.step()

    # the losses of the two differ by 1e4 in every step, and neither of them explodes
    assert held(loop, training.loss_not_exploding(max_ratio=100), train=train) == []
