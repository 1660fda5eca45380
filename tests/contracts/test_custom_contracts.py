"""Predicates of a person's own."""

import pytest
import torch

import nabla
from nabla_contracts import Judgement, contract
from nabla_core.errors import UsageError
from nabla_core.issue import Quantity
from nabla_core.testing import records


def test_it_is_reachable_as_nabla_contract():
    assert nabla.contract is contract
    assert nabla.contracts.contract is contract


def test_a_predicate_that_is_false_is_reported_by_its_name(judged):
    small = contract("loss below 10", lambda step: step.loss < 10)

    (issue,) = judged(small, records(loss=[9.9, 10.0]))

    assert (issue.rule, issue.step) == ("CON199", 1)
    assert "loss below 10" in issue.message


def test_a_scalar_tensor_is_an_answer(judged):
    wrong = contract("never", lambda step: torch.tensor(False))
    right = contract("always", lambda step: torch.tensor([True]))

    assert [issue.rule for issue in judged(wrong, records(loss=[1.0]))] == ["CON199"]
    assert judged(right, records(loss=[1.0])) == []


def test_a_failed_assertion_is_a_breach_with_its_text(judged):
    def predicate(step):
        assert step.loss < 1, f"the loss is {step.loss}"

    (issue,) = judged(contract("c", predicate), records(loss=[2.0]))

    assert issue.rule == "CON199"
    assert "the loss is 2.0" in issue.message


def test_a_judgement_brings_its_evidence(judged):
    def predicate(step):
        return Judgement(message="too large", evidence={"loss": Quantity(value=step.loss)})

    (issue,) = judged(contract("c", predicate), records(loss=[2.0]))

    assert issue.evidence["loss"].value == 2.0


@pytest.mark.parametrize("answer", ["yes", 1.0, torch.ones(2, dtype=torch.bool), []])
def test_an_answer_that_is_none_is_not_evaluated(judged, answer):
    (issue,) = judged(contract("c", lambda step: answer), records(loss=[1.0]))

    assert issue.rule == "CON901"
    assert type(answer).__name__ in issue.message


def test_a_predicate_that_raises_is_not_evaluated(judged):
    (issue,) = judged(contract("c", lambda step: 1 / 0), records(loss=[1.0]))

    assert issue.rule == "CON901"
    assert "ZeroDivisionError" in issue.message


def test_what_it_needs_and_does_not_get_is_said(judged):
    asked = []
    wants = contract("c", asked.append, needs=("gradients",))

    (issue,) = judged(wants, records(loss=[1.0]))

    assert (issue.rule, asked) == ("CON901", [])


def test_it_sees_the_step_of_a_live_loop(loop, held):
    seen = {}

    def predicate(step):
        seen["names"] = tuple(step.gradients)
        seen["parameters"] = tuple(step.parameters)
        seen["same"] = step.gradients["0.weight"].equal(loop.model[0].weight.grad)
        seen["modules"] = tuple(step.activations)
        seen["range"] = step.activations["1"]
        seen["lr"] = step.lr
        return True

    assert held(loop, contract("looks", predicate)) == []

    names = ("0.weight", "0.bias", "2.weight", "2.bias")
    assert seen["names"] == seen["parameters"] == names
    assert seen["same"]
    assert seen["modules"] == ("0", "1", "2")
    assert seen["range"].low == 0.0 and seen["range"].is_finite
    assert seen["lr"] == 1e-2


def test_updates_are_what_the_step_added(loop, held):
    off = []

    def predicate(step):
        for name, parameter in loop.model.named_parameters():
            off.append(float((step.updates[name] + 1e-2 * parameter.grad).abs().max()))
        return step.loss < 100.0

    assert held(loop, contract("exact", predicate, needs=("updates",))) == []
    assert len(off) == 6 * 4
    assert max(off) < 1e-7


def test_updates_that_were_not_asked_for_are_not_there(loop, held):
    (issue,) = held(loop, contract("c", lambda step: bool(step.updates)))

    assert issue.rule == "CON901"
    assert "needs=" in issue.message


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("", bool), "needs a name"),
        (("c", 3), "needs a function"),
    ],
)
def test_wrong_arguments_are_named(arguments, says):
    with pytest.raises(UsageError, match=says):
        contract(*arguments)


def test_an_unknown_need_is_named():
    with pytest.raises(UsageError, match="did you mean 'gradients'"):
        contract("c", bool, needs=("gradient",))
