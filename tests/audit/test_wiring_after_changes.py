"""AUD201 and AUD202 where the program changed its parts after the optimizer was made; AUD206 for
derivatives that nothing can flow through."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def loud(issues):
    return [
        (issue.rule, issue.severity.label) for issue in issues if issue.severity.label != "info"
    ]


def adam(module):
    return torch.optim.Adam(module.parameters(), 1e-2)


def fit(model, *optimizers, count=6, behind=None):
    for step in range(count):
        x = torch.randn(16, 6)
        model.zero_grad()
        F.cross_entropy(model(x), x[:, :3].argmax(-1)).backward()
        for optimizer in optimizers:
            optimizer.step()
        if behind is not None:
            behind(step)


class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(2, base.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(base.out_features, 2))

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


def adapt(model):
    model.requires_grad_(False)
    model[0], model[2] = Adapted(model[0]), Adapted(model[2])


@pytest.mark.parametrize(("early", "found"), [(True, [("AUD202", "high")]), (False, [])])
def test_adapters_that_are_younger_than_the_optimizer(audited, net, early, found):
    def program():
        model = net()
        optimizer = adam(model) if early else None
        adapt(model)
        fit(model, optimizer or adam(model))

    assert loud(audited(program)) == found


@pytest.mark.parametrize(("told", "found"), [(False, [("AUD201", "high")]), (True, [])])
def test_a_body_that_is_unfrozen(audited, net, told, found):
    def program():
        model = net()
        model[0].load_state_dict(net()[0].state_dict())  # no random weights
        model[0].requires_grad_(False)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)

        def unfreeze(step):
            if step == 5:
                model[0].requires_grad_(True)
                if told:
                    optimizer.add_param_group({"params": model[0].parameters()})

        fit(model, optimizer, count=14, behind=unfreeze)

    assert loud(audited(program)) == found


@pytest.mark.parametrize(("copied", "found"), [(True, [("AUD202", "high")]), (False, [])])
def test_a_copied_optimizer_holds_copied_parameters(audited, net, copied, found):
    def program():
        model = net()
        original = adam(model)
        optimizer = copy.deepcopy(original) if copied else original
        fit(model, optimizer)
        assert original is not None

    assert loud(audited(program)) == found


@pytest.mark.parametrize(
    ("both", "count", "found"),
    [(False, 40, [("AUD201", "medium")]), (False, 9, []), (True, 40, [])],
)
def test_an_optimizer_that_never_steps(audited, net, both, count, found):
    def program():
        model = net()
        first, second = adam(model[0]), adam(model[2])
        fit(model, first, *([second] if both else []), count=count)

    assert loud(audited(program)) == found


def critic(create_graph, steps=6):
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    maker = nn.Linear(4, 2)
    optimizer, other = adam(model), adam(maker)
    for _ in range(steps):
        real, fake = torch.randn(16, 2) + 1, maker(torch.randn(16, 4)).detach()
        mixed = (0.3 * real + 0.7 * fake).requires_grad_(True)
        (slope,) = torch.autograd.grad(model(mixed).sum(), mixed, create_graph=create_graph)
        penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
        optimizer.zero_grad()
        (model(fake).mean() - model(real).mean() + 10 * penalty).backward()
        optimizer.step()
        other.zero_grad()
        (-model(maker(torch.randn(16, 4))).mean()).backward()
        other.step()


@pytest.mark.parametrize(("create_graph", "found"), [(False, [("AUD206", "high")]), (True, [])])
def test_a_gradient_penalty_needs_a_graph(audited, create_graph, found):
    issues = audited(lambda: critic(create_graph))
    assert loud(issues) == found
    assert all("without create_graph=True" in issue.message for issue in issues)


@pytest.mark.parametrize(("axis", "found"), [(0, [("AUD405", "high")]), (None, [])])
def test_scores_that_compete_in_the_batch_before_a_cross_entropy(audited, net, axis, found):
    model = net()
    if axis is not None:
        model.append(nn.Softmax(dim=axis))
    issues = loud(audited(lambda: fit(model, adam(model))))
    assert [issue for issue in issues if issue[0] != "AUD406"] == found
