"""AUD301, over facts and in real programs."""

import pytest
import torch
from torch import nn

from nabla_audit.mode import ModeDetector
from nabla_guard.facts import Call, ModuleFacts, OptimizerFacts, ParameterFacts


def named(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


def situation(**changes):
    optimizer = OptimizerFacts(name="Adam", calls=[Call(kind="write", backward=1)])
    held = ParameterFacts(name="weight", optimizers=[optimizer])
    given = {
        "name": "Net",
        "parameters": [held],
        "mode_dependent": ("Dropout",),
        "evaluated_calls": 1,
        "ever_trained": True,
        "validated": True,
    }
    return optimizer, ModuleFacts(**(given | changes))


@pytest.mark.parametrize(("steps", "found"), [(2, []), (3, [("AUD301", 2)])])
def test_three_steps_in_a_row_are_a_verdict(fake_facts, judge, steps, found):
    optimizer, module = situation()
    detector = ModeDetector(fake_facts(optimizer, modules=[module]))
    assert judge(detector, steps) == found


@pytest.mark.parametrize(
    "changes",
    [
        {"mode_dependent": ()},
        {"trained_calls": 1},
        {"evaluated_calls": 0},
        {"active_mode_dependent": 1},
        {"parameters": [ParameterFacts(name="of another optimizer")]},
    ],
)
def test_what_only_looks_like_it_is_silent(fake_facts, judge, changes):
    optimizer, module = situation(**changes)
    assert judge(ModeDetector(fake_facts(optimizer, modules=[module])), 6) == []


def regularised():
    return nn.Sequential(
        nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 3)
    )


def step(model, optimizer, x, y, entropy):
    optimizer.zero_grad()
    entropy(model(x), y).backward()
    optimizer.step()


def validate(model, data):
    model.eval()
    with torch.no_grad():
        for x, _ in data:
            model(x)


def test_validation_that_does_not_switch_back(audited, batches, entropy):
    def program():
        model = regularised()
        optimizer = torch.optim.Adam(model.parameters())
        model.train()
        for _ in range(3):
            for x, y in batches(5):
                step(model, optimizer, x, y, entropy)
            validate(model, batches(2))

    (issue,) = audited(program)
    assert (issue.rule, issue.severity.label, issue.step) == ("AUD301", "high", 7)
    assert "since step 5" in issue.message


def test_a_trainer_that_never_switches_on(audited, batches, entropy):
    class Trainer:
        def __init__(self):
            self.model = regularised().eval()
            self.optimizer = torch.optim.Adam(self.model.parameters())

        def fit(self, data):
            for x, y in data:
                step(self.model, self.optimizer, x, y, entropy)

    assert named(audited(lambda: Trainer().fit(batches()))) == [("AUD301", "medium")]


def switching_back(model, optimizer, batches, entropy):
    for x, y in batches(12):
        model.train()
        step(model, optimizer, x, y, entropy)
        validate(model, batches(1))


def frozen_normalisation(model, optimizer, batches, entropy):
    model.train()
    model[1].eval()
    for x, y in batches(8):
        step(model, optimizer, x, y, entropy)


def attacking_in_eval_mode(model, optimizer, batches, entropy):
    for x, y in batches(8):
        model.eval()
        shift = torch.zeros_like(x, requires_grad=True)
        entropy(model(x + shift), y).backward()
        model.train()
        step(model, optimizer, x + 0.1 * shift.grad.sign(), y, entropy)


def one_step_in_eval_mode(model, optimizer, batches, entropy):
    for index, (x, y) in enumerate(batches(12)):
        model.train(index % 4 > 1)
        step(model, optimizer, x, y, entropy)


HEALTHY = [
    switching_back,
    frozen_normalisation,
    attacking_in_eval_mode,
    one_step_in_eval_mode,
]


@pytest.mark.parametrize("program", HEALTHY, ids=lambda program: program.__name__)
def test_healthy_modes_are_silent(audited, batches, entropy, program):
    def run():
        model = regularised()
        program(model, torch.optim.Adam(model.parameters()), batches, entropy)

    assert audited(run) == []


def test_a_model_without_such_modules_may_be_in_any_mode(audited, net, batches, entropy):
    def program():
        model = net().eval()
        optimizer = torch.optim.Adam(model.parameters())
        for x, y in batches(8):
            step(model, optimizer, x, y, entropy)

    assert audited(program) == []
