"""AUD101, AUD102 and AUD204: gradients that are used twice, never cleared, or never there."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def found(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


def body_and_head():
    return nn.Sequential(nn.Sequential(nn.Linear(6, 12), nn.ReLU()), nn.Linear(12, 2))


def loss_of(model):
    x = torch.randn(16, 6)
    return F.cross_entropy(model(x), (x[:, 0] > 0).long())


@pytest.mark.parametrize("part", [1, None], ids=["head only", "all"])
def test_parameters_that_nobody_clears(audited, part):
    def program():
        model = body_and_head()
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(6):
            (model if part is None else model[part]).zero_grad()
            loss_of(model).backward()
            optimizer.step()

    assert found(audited(program)) == ([] if part is None else [("AUD102", "medium")])


def two_steps(model, split):
    first, second = (model[0], model[1]) if split else (model, model)
    optimizers = [
        torch.optim.AdamW(first.parameters(), 1e-3),
        torch.optim.SGD(second.parameters(), 0.05),
    ]
    for _ in range(6):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(model).backward()
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("split", [False, True])
def test_two_optimizers_that_apply_one_gradient(audited, split):
    issues = audited(lambda: two_steps(body_and_head(), split))
    assert found(issues) == [("AUD102", "medium")] * (not split)


@pytest.mark.parametrize(("extra", "rules"), [(2, []), (3, [("AUD102", "medium")])])
def test_a_step_behind_that_of_the_scaler(audited, extra, rules):
    def program():
        model = body_and_head()
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        for _ in range(extra):
            optimizer.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.step()

    assert found(audited(program)) == rules


@pytest.mark.parametrize(("passes", "rules"), [(9, []), (10, [("AUD101", "medium")])])
def test_a_loop_that_never_steps(audited, passes, rules):
    def program():
        model = body_and_head()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(passes):
            optimizer.zero_grad()
            loss_of(model).backward()

    assert found(audited(program)) == rules


def test_steps_by_hand_beside_an_optimizer_that_only_clears(audited):
    def program():
        model = body_and_head()
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(12):
            optimizer.zero_grad()
            loss_of(model).backward()
            for parameter in model.parameters():
                parameter.data -= 0.05 * parameter.grad

    assert audited(program) == []


def adversaries(cut, steps):
    generator, critic = nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    makes = torch.optim.Adam(generator.parameters(), 1e-3)
    judges = torch.optim.Adam(critic.parameters(), 1e-3)
    for _ in range(steps):
        fake = generator(torch.randn(16, 3))
        judges.zero_grad()
        (critic(fake.detach()) - critic(torch.randn(16, 2))).mean().backward()
        judges.step()
        makes.zero_grad()
        (-critic(fake.detach() if cut else fake).mean()).backward()
        makes.step()


@pytest.mark.parametrize(
    ("cut", "steps", "rules"),
    [(True, 12, [("AUD204", "medium")]), (True, 9, []), (False, 12, [])],
)
def test_an_optimizer_whose_module_never_gets_a_gradient(audited, cut, steps, rules):
    loud = [pair for pair in found(audited(lambda: adversaries(cut, steps))) if pair[1] != "info"]
    assert loud == rules


@pytest.mark.parametrize("cleared", [False, True])
def test_a_frozen_parameter_that_momentum_moves(audited, cleared):
    def program():
        model = body_and_head()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for index in range(10):
            if index == 4:
                for parameter in model[0].parameters():
                    parameter.requires_grad = False
                    parameter.grad = None if cleared else parameter.grad
            optimizer.zero_grad(set_to_none=False)
            loss_of(model).backward()
            optimizer.step()

    assert found(audited(program)) == [("AUD212", "high")] * (not cleared)


def test_gradients_by_hand_for_parameters_that_take_none(audited):
    def program():
        model = body_and_head()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for index in range(10):
            if index == 4:
                model[0].requires_grad_(False)
            optimizer.zero_grad()
            loss_of(model).backward()
            for parameter in model[0].parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()

    assert audited(program) == []


@pytest.mark.parametrize("anew", [True, False])
def test_a_weight_that_is_replaced_after_some_steps(audited, anew):
    def program():
        model = body_and_head()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for index in range(12):
            if index == 4:
                pruned = model[1].weight.detach() * (torch.rand(2, 12) > 0.3)
                if anew:
                    model[1].weight = nn.Parameter(pruned)
                else:
                    model[1].weight.data.copy_(pruned)
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()

    loud = [pair for pair in found(audited(program)) if pair[1] != "info"]
    assert loud == [("AUD202", "high")] * anew
