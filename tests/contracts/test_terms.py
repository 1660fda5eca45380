"""How often a contract is looked at, how many breaches count, and what a breach does."""

import pytest
import torch

import nabla
from nabla_contracts import ContractViolation, gradient, loss, parameter, training
from nabla_core.errors import UsageError
from nabla_core.testing import records
from nabla_guard import guard

HIGH, LOW = 100.0, 1.0


def steps(issues):
    return [issue.step for issue in issues]


def test_only_breaches_in_a_row_are_reported(judged):
    contract = gradient.norm(max=10.0, consecutive=3)
    norms = [HIGH, HIGH, LOW, HIGH, HIGH, HIGH, HIGH]

    assert steps(judged(contract, records(grad_norm=norms))) == [5, 6]


def test_two_breaches_of_three_are_silent(judged):
    contract = gradient.norm(max=10.0, consecutive=3)

    assert judged(contract, records(grad_norm=[HIGH, HIGH, LOW] * 4)) == []


def test_every_leaves_steps_out(judged):
    norms = [HIGH if step % 4 == 0 else LOW for step in range(12)]

    assert steps(judged(gradient.norm(max=10.0, every=4), records(grad_norm=norms))) == [0, 4, 8]
    assert judged(gradient.norm(max=10.0, every=4), records(1, grad_norm=norms[1:4])) != []


def test_changes_are_measured_in_the_steps_that_are_looked_at(loop, held):
    contract = parameter.change(max_relative=1e-12, every=3)

    (issue,) = held(loop, contract, train=lambda: loop.train(7))

    assert (issue.step, issue.last_step, issue.count) == (0, 6, 3)


def test_severity_and_name_are_the_persons(judged):
    contract = loss.finite(name="healthy loss", severity="low")

    (issue,) = judged(contract, records(loss=[float("nan")]))

    assert issue.severity.label == "low"
    assert "'healthy loss'" in issue.message


def test_two_contracts_of_one_rule_are_two_issues(loop, held):
    found = held(loop, gradient.norm(max=1e-9), gradient.norm(max=1e-8))

    assert len(found) == 2


def test_a_breach_ends_the_run_before_the_optimizer_acts(loop):
    before = []

    def keep(step):
        before[:] = [p.detach().clone() for p in loop.model.parameters()]

    with (
        pytest.raises(ContractViolation, match="CON102.*step 0") as caught,
        guard(loop.model, contracts=[gradient.norm(max=1e-9)], raise_on_failure=True),
    ):
        loop.train(5, None, keep)

    assert caught.value.issue.rule == "CON102"
    after = list(loop.model.parameters())
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_a_change_ends_the_run_after_its_step(loop):
    contract = parameter.change(max_relative=1e-12, raise_on_failure=True)

    with (
        pytest.raises(ContractViolation, match="CON104.*step 0"),
        guard(loop.model, contracts=[contract]),
    ):
        loop.train(5)


def test_the_breach_of_a_calm_loop_ends_it_too(loop):
    def jump(step, value):
        return value * (1e6 if step == 150 else 1.0)

    contract = training.loss_not_exploding(max_ratio=1000, raise_on_failure=True)

    with (
        pytest.raises(ContractViolation, match="step 150"),
        guard(loop.model, contracts=[contract], shadow="off"),
    ):
        loop.train(200, jump)


def test_the_loop_goes_on_where_one_contract_does_not_raise(loop, held):
    quiet = gradient.norm(max=1e-9, raise_on_failure=False)

    (issue,) = held(loop, quiet, raise_on_failure=True)

    assert issue.count == 6


def test_training_can_go_on_after_a_violation(loop):
    with guard(loop.model, contracts=[gradient.norm(max=1e-9, raise_on_failure=True)]) as monitor:
        for _ in range(3):
            with pytest.raises(ContractViolation):
                loop.train(1)

    assert monitor.steps == 3


def test_what_is_allowed_does_not_end_the_run(loop):
    with (
        nabla.allow("CON102", reason="warm-up"),
        guard(loop.model, contracts=[gradient.norm(max=1e-9)], raise_on_failure=True) as monitor,
    ):
        loop.train(3)

    assert not [issue for issue in monitor.issues if issue.rule == "CON102"]


def test_losses_are_the_same_with_and_without_contracts(make_loop):
    def run(contracts):
        loop, losses = make_loop(), []
        with guard(loop.model, contracts=contracts, shadow="off"):
            loop.train(30, lambda step, value: losses.append(value.detach()) or value)
        return torch.stack(losses)

    wanted = [gradient.norm(max=1.0), parameter.change(max_relative=0.1), loss.finite()]

    assert torch.equal(run([]), run(wanted))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: gradient.norm(), "needs min, max or both"),
        (lambda: gradient.norm(max=-1.0), "at least 0"),
        (lambda: gradient.norm(min=2.0, max=1.0), "above"),
        (lambda: gradient.norm(max=1.0, parameters=[]), "glob"),
        (lambda: gradient.norm(max=1.0, every=0), "at least 1"),
        (lambda: gradient.norm(max=1.0, evry=2), "did you mean 'every'"),
        (lambda: loss.finite(severity="huge", consecutive=0), "consecutive"),
        (lambda: training.loss_not_exploding(max_ratio=1.0), "more than 1"),
        (lambda: training.loss_not_exploding(window=0), "at least 1 step"),
        (lambda: gradient.norm(max="3"), "max = '3': needs a number"),
        (lambda: training.loss_not_exploding(max_ratio="3"), "max_ratio = '3': needs a number"),
        (lambda: training.loss_not_exploding(window=2.5), "window = 2.5: needs a whole number"),
        (lambda: parameter.change(), "min_relative, max_relative or both"),
    ],
)
def test_a_wrong_argument_is_named(make, says):
    with pytest.raises(UsageError, match=says):
        make()


def test_guard_says_what_is_no_contract(loop):
    with pytest.raises(UsageError, match=r"contracts=\[int\]"):
        guard(loop.model, contracts=[3])


def test_a_contract_whose_rule_is_not_selected_is_not_evaluated(loop, monkeypatch):
    monkeypatch.setenv("NABLA_SELECT", "NUM")

    with guard(loop.model, contracts=[gradient.norm(max=1e-9)]) as monitor:
        loop.train(3)

    reasons = [entry.reason for entry in monitor.report().not_evaluated if entry.rule == "CON102"]
    assert reasons and "not selected" in reasons[0]
