"""AUD107 to AUD110: clipping, loss scaling, and gradients of other losses."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def rules(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


def scaler(scale=2.0**12):
    return torch.amp.GradScaler("cpu", init_scale=scale)


@pytest.mark.parametrize("clip", ["norm", "value"])
def test_clipping_scaled_gradients(audited, net, batches, clip):
    def program():
        model, scale = net(), scaler()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x, y in batches(6):
            optimizer.zero_grad()
            scale.scale(F.cross_entropy(model(x), y)).backward()
            if clip == "norm":
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            else:
                nn.utils.clip_grad_value_(model.parameters(), 0.1)
            scale.step(optimizer)
            scale.update()

    (issue,) = audited(program)
    assert (issue.rule, issue.severity.label, issue.step) == ("AUD107", "high", 1)
    assert issue.evidence["loss_scale"].value == 4096.0


@pytest.mark.parametrize("given", ["iterator", "other part"])
def test_clipping_nothing(audited, net, batches, given):
    class Trainer:
        def __init__(self):
            self.model = net()
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
            self.parameters = iter(list(self.model.parameters())) if given == "iterator" else []

        def fit(self, data):
            list(self.parameters)
            for x, y in data:
                self.optimizer.zero_grad()
                F.cross_entropy(self.model(x), y).backward()
                nn.utils.clip_grad_norm_(self.parameters, 1.0)
                self.optimizer.step()

    assert rules(audited(lambda: Trainer().fit(batches(6)))) == [("AUD108", "high")]


def test_a_direct_step_on_scaled_gradients(audited, net, batches):
    def program():
        model, scale = net(), scaler()
        optimizer = torch.optim.SGD(model.parameters(), 1e-6)
        for x, y in batches(6):
            optimizer.zero_grad()
            scale.scale(F.cross_entropy(model(x), y)).backward()
            optimizer.step()

    assert rules(audited(program)) == [("AUD109", "high")]


def test_one_of_two_losses_is_not_scaled(audited, net, batches):
    def program():
        model, scale = net(), scaler()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for x, y in batches(6):
            optimizer.zero_grad()
            scale.scale(F.cross_entropy(model(x), y)).backward()
            model(x).pow(2).mean().backward()
            scale.step(optimizer)
            scale.update()

    (issue,) = [issue for issue in audited(program) if issue.rule == "AUD109"]
    assert "and of one that is not" in issue.message


def unscaled_first(model, optimizer, scale, x, y):
    scale.scale(F.cross_entropy(model(x), y)).backward()
    scale.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scale.step(optimizer)
    scale.update()


def measured_only(model, optimizer, scale, x, y):
    scale.scale(F.cross_entropy(model(x), y)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    scale.step(optimizer)
    scale.update()


def both_scaled(model, optimizer, scale, x, y):
    total = scale.scale(F.cross_entropy(model(x), y)) + scale.scale(model(x).pow(2).mean())
    total.backward()
    scale.step(optimizer)
    scale.update()


def disabled(model, optimizer, scale, x, y):
    off = torch.amp.GradScaler("cpu", enabled=False)
    off.scale(F.cross_entropy(model(x), y)).backward()
    nn.utils.clip_grad_norm_(list(model.parameters()), 1.0)
    off.step(optimizer)
    off.update()


def without_a_scaler(model, optimizer, scale, x, y):
    F.cross_entropy(model(x), y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    nn.utils.clip_grad_norm_([], 1.0) if y[0] < 0 else None
    optimizer.step()


@pytest.mark.parametrize(
    "step",
    [unscaled_first, measured_only, both_scaled, disabled, without_a_scaler],
    ids=lambda step: step.__name__,
)
def test_scaling_and_clipping_in_order_is_silent(audited, net, batches, step):
    def program():
        model, scale = net(), scaler()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x, y in batches(6):
            optimizer.zero_grad()
            step(model, optimizer, scale, x, y)

    assert audited(program) == []


# ---------------------------------------------------------------- AUD110
class Adversaries:
    """A generator and a discriminator; ``clears`` says when the second is cleared."""

    def __init__(self, clears):
        self.clears = clears
        self.maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.judge = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
        self.make = torch.optim.Adam(self.maker.parameters(), 1e-3)
        self.tell = torch.optim.Adam(self.judge.parameters(), 1e-3)

    def loss(self, inputs, label):
        logits = self.judge(inputs)
        return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))

    def step(self):
        self.make.zero_grad()
        self.loss(self.maker(torch.randn(8, 4)), 1.0).backward()
        self.make.step()
        if self.clears == "before":
            self.tell.zero_grad()
        fake = self.maker(torch.randn(8, 4)).detach()
        (self.loss(torch.randn(8, 2), 1.0) + self.loss(fake, 0.0)).backward()
        self.tell.step()
        if self.clears == "after":
            self.tell.zero_grad()


@pytest.mark.parametrize(("clears", "found"), [("after", [("AUD110", "medium")]), ("before", [])])
def test_gradients_of_the_other_player(audited, clears, found):
    def program():
        players = Adversaries(clears)
        for _ in range(6):
            players.step()

    assert rules(audited(program)) == found


def test_a_regulariser_with_its_own_optimizer(audited, net, batches):
    def program():
        body, head = nn.Linear(6, 8), nn.Linear(8, 3)
        first = torch.optim.SGD(head.parameters(), 0.1)
        second = torch.optim.SGD(body.parameters(), 0.1)
        for x, y in batches(6):
            first.zero_grad()
            F.cross_entropy(head(body(x)), y).backward()
            first.step()
            body(x).pow(2).mean().backward()
            second.step()
            second.zero_grad()

    assert rules(audited(program)) == [("AUD110", "medium")]
