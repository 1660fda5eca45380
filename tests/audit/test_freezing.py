"""AUD212: attributes that freeze nothing; AUD111: optimizers that are made for one step."""

import pytest
import torch
from torch import nn


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 24), nn.ReLU())
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(self.body(x))


class Optional(nn.Linear):
    """Its own option has the name of torch's; it is not the parameters' one."""

    def __init__(self, *args, requires_grad=False):
        super().__init__(*args)
        self.requires_grad = requires_grad

    def forward(self, x):
        return super().forward(x if self.requires_grad else x.detach())


def found(issues):
    return [(issue.rule, issue.severity.label.lower()) for issue in issues]


def fit(model, data, entropy, make=None, between=None):
    optimizer = (make or torch.optim.Adam)(model.parameters())
    for index, (x, y) in enumerate(data):
        optimizer.zero_grad()
        entropy(model(x), y).backward()
        optimizer.step()
        if between is not None:
            optimizer = between(index, model, optimizer) or optimizer


def by_module(model):
    model.body.requires_grad = False


def by_a_misspelt_module(model):
    model.body.require_grad = False


def by_misspelt_parameters(model):
    for parameter in model.body.parameters():
        parameter.require_grad = False


def properly(model):
    model.body.requires_grad_(False)


def with_another_attribute(model):
    model.body.graded = False
    model.head.weight.keep_grads = False


@pytest.mark.parametrize(
    ("freeze", "count"),
    [
        (by_module, 1),
        (by_a_misspelt_module, 1),
        (by_misspelt_parameters, 2),
        (properly, 0),
        (with_another_attribute, 0),
    ],
)
def test_a_freeze(audited, batches, entropy, freeze, count):
    def program():
        model = Body()
        freeze(model)
        fit(model, batches(8), entropy)

    issues = audited(program)
    assert found(issues) == [("AUD212", "high")] * count
    assert all(issue.step == 2 for issue in issues)


def test_a_freeze_in_mid_run(audited, batches, entropy):
    def later(index, model, optimizer):
        if index == 20:
            by_module(model)

    issues = audited(lambda: fit(Body(), batches(90), entropy, between=later))
    assert found(issues) == [("AUD212", "high")]


def test_what_no_optimizer_trains_is_silent(audited, batches, entropy):
    def program():
        model = Body()
        by_module(model)
        model.body.requires_grad_(False)
        fit(model, batches(8), entropy)

    assert audited(program) == []


def test_an_option_of_a_class_is_silent(audited, batches, entropy):
    def program():
        model = nn.Sequential(Optional(6, 24), nn.ReLU(), nn.Linear(24, 3))
        fit(model, batches(8), entropy)

    assert audited(program) == []


# ---------------------------------------------------------------- made for every step
def adam(parameters):
    return torch.optim.Adam(parameters)


def momentum(parameters):
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def plain(parameters):
    return torch.optim.SGD(parameters, 0.1)


@pytest.mark.parametrize(
    ("make", "every", "names"),
    [
        (adam, 1, [("AUD111", "high")]),
        (momentum, 1, [("AUD111", "high")]),
        (plain, 1, []),
        (adam, 2, []),
    ],
)
def test_an_optimizer_that_is_made_again(audited, batches, entropy, make, every, names):
    def again(index, model, optimizer):
        return None if (index + 1) % every else make(model.parameters())

    assert found(audited(lambda: fit(Body(), batches(12), entropy, make, again))) == names


def test_two_for_one_step_are_no_habit(audited, batches, entropy):
    def again(index, model, optimizer):
        return adam(model.parameters()) if index < 2 else None

    assert found(audited(lambda: fit(Body(), batches(12), entropy, adam, again))) == []


def test_one_that_loads_its_state_is_silent(audited, batches, entropy):
    def again(index, model, optimizer):
        new = adam(model.parameters())
        new.load_state_dict(optimizer.state_dict())
        return new

    assert found(audited(lambda: fit(Body(), batches(12), entropy, adam, again))) == []


def test_a_trainer_that_makes_one_in_its_step(audited, batches, entropy):
    class Trainer:
        def __init__(self):
            self.model = Body()

        def step(self, x, y):
            optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
            self.model.zero_grad()
            entropy(self.model(x), y).backward()
            optimizer.step()

    def program():
        trainer = Trainer()
        for x, y in batches(8):
            trainer.step(x, y)

    (issue,) = audited(program)
    assert issue.rule == "AUD111"
    assert issue.evidence["optimizers"].value == 4


def test_an_optimizer_made_anew_begins_a_new_step(audited):
    def program():
        model = nn.Linear(6, 3)
        kept = []
        for _ in range(6):
            kept.append(torch.optim.Adam(model.parameters()))
            x = torch.randn(16, 6)
            model.zero_grad()
            nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
            kept[-1].step()

    assert [(issue.rule, issue.step) for issue in audited(program)] == [("AUD111", 3)]
