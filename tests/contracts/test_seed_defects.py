"""Two faults of an earlier tool: state by ``id``, and a missing input as a failure."""

import gc

import torch
from torch import nn

import nabla_contracts
from nabla_contracts import gradient, loss, parameter, tensor, training
from nabla_core.testing import records
from nabla_guard import guard

ALL = (
    loss.finite(),
    gradient.norm(max=10.0),
    gradient.norm(max=10.0, parameters="0.*"),
    tensor.finite(),
    parameter.change(min_relative=1e-9),
    training.loss_not_exploding(),
)


def test_an_exploding_gradient_is_seen_in_every_step_although_objects_come_and_go(judged):
    """A cache by ``id`` of a step's facts misses all 45, since the next step reuses the id."""
    contract = gradient.norm(max=10.0)
    caught = 0
    for step in range(50):
        facts = records(step, grad_norm=[1.0 if step < 5 else 2e6])
        caught += any(issue.rule == "CON102" for issue in judged(contract, facts))
        del facts
        gc.collect(0)

    assert caught == 45


def test_a_new_model_at_the_address_of_an_old_one_is_judged_afresh():
    contract = gradient.norm(max=10.0)
    verdicts = []
    for scale in (1.0, 1e6, 1.0, 1e6):
        model = nn.Linear(4, 1)
        (scale * model(torch.ones(2, 4)).sum()).backward()
        verdicts.append(nabla_contracts.check(model, contracts=[contract]).passed)
        del model

    assert verdicts == [True, False, True, False]


def test_models_that_follow_each_other_in_one_loop_are_all_judged():
    torch.manual_seed(0)
    with guard(contracts=[gradient.norm(max=10.0)], shadow="off") as monitor:
        for scale in (1.0, 1e6, 1.0, 1e6):
            model = nn.Linear(4, 1)
            optimizer = torch.optim.SGD(model.parameters(), 1e-9)
            (scale * model(torch.ones(2, 4)).sum()).backward()
            optimizer.step()
            del model, optimizer

    (issue,) = [issue for issue in monitor.issues if issue.rule == "CON102"]
    assert issue.count == 2


def test_a_healthy_model_breaks_none_of_the_contracts(loop, held):
    assert held(loop, *ALL, train=lambda: loop.train(25)) == []


def test_a_missing_input_is_no_failure():
    outcome = nabla_contracts.check(contracts=ALL)

    assert outcome.passed
    assert {issue.rule for issue in outcome.issues} == {"CON901"}
    assert len(outcome.not_evaluated) == len(ALL)
    outcome.raise_if_failed()


def test_a_log_without_a_column_is_no_failure(judged):
    for contract in ALL:
        found = judged(contract, records(accuracy=[0.5, 0.6]))

        assert [issue.rule for issue in found] == ["CON901"], contract.name


def test_an_absent_step_between_others_is_said_and_is_no_failure(judged):
    (issue,) = judged(loss.finite(), records(loss=[1.0, None, 1.0]))

    assert issue.rule == "CON901"
    assert "1 of 3 steps" in issue.message
