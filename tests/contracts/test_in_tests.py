"""Contracts as assertions of a unit test."""

import pytest
import torch
from torch import nn

from nabla_contracts import assert_step, check, gradient, loss, parameter, tensor
from nabla_core.errors import UsageError


def model_with_gradients(scale=1.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    (scale * model(torch.ones(2, 4)).sum()).backward()
    return model


def test_check_holds_a_model_to_contracts_once():
    wanted = [gradient.norm(max=100.0), loss.finite()]

    assert check(model_with_gradients(), loss=0.5, contracts=wanted).issues == ()

    outcome = check(model_with_gradients(1e6), loss=torch.tensor(0.5), contracts=wanted)
    assert [issue.rule for issue in outcome.issues] == ["CON102"]
    with pytest.raises(AssertionError, match="0.weight|1.weight"):
        outcome.raise_if_failed()


def test_check_knows_parameters_of_an_optimizer_alone():
    model = model_with_gradients(1e6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    assert not check(None, optimizer, contracts=[gradient.norm(max=1.0)]).passed


def test_check_says_what_one_look_cannot_see():
    contracts = [tensor.finite(), parameter.change(max_relative=1.0)]

    outcome = check(model_with_gradients(), contracts=contracts)

    assert outcome.passed
    assert len(outcome.not_evaluated) == 2


def test_check_changes_nothing():
    model = model_with_gradients()
    before = [p.grad.clone() for p in model.parameters()]

    check(model, contracts=[gradient.norm(max=1e-9)])

    assert all(torch.equal(old, p.grad) for old, p in zip(before, model.parameters(), strict=True))


def test_assert_step_passes_for_a_step_that_holds(loop):
    outcome = assert_step(lambda: loop.train(1), [parameter.change(min_relative=1e-9)], steps=2)

    assert outcome.issues == ()


def test_assert_step_fails_with_the_message(loop):
    with pytest.raises(AssertionError, match=r"the gradient norm is .* \(limit 1e-09\)"):
        assert_step(lambda: loop.train(1), [gradient.norm(max=1e-9)])


def test_assert_step_fails_where_nothing_was_trained(loop):
    with pytest.raises(AssertionError, match="no optimizer made a step"):
        assert_step(lambda: None, [gradient.norm(max=1e-9)])


def test_assert_step_names_wrong_arguments(loop):
    with pytest.raises(UsageError, match="at least 1"):
        assert_step(lambda: None, [], steps=0)
    with pytest.raises(UsageError, match="a function"):
        assert_step(3, [])
    with pytest.raises(UsageError, match=r"contracts=\[str\]"):
        check(contracts=["loss"])
