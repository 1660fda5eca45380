"""Odd loops that are healthy, by hand or with side effects: nothing is reported or changed."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

PROGRAMS = []


def healthy(function):
    """Note a healthy program."""
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


def pairs(steps=5, size=8, width=6, classes=3):
    return [(torch.randn(size, width), torch.randint(0, classes, (size,))) for _ in range(steps)]


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def classify(model, x, y):
    return F.cross_entropy(model(x), y)


def fit(log, model, loss, batches, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 1e-3)
    for batch in batches:
        optimizer.zero_grad()
        value = loss(model, *batch)
        value.backward()
        optimizer.step()
        log(value)
    log(*model.parameters())


@healthy
def grad_clip_value_inf_norm(log):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for x, y in pairs():
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), math.inf)
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        log(loss)


@healthy
def wgan_clip(log):
    d = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.RMSprop(d.parameters(), 5e-4)
    for _ in range(8):
        r, f = torch.randn(8, 6), torch.randn(8, 6) + 1
        optimizer.zero_grad()
        loss = d(f).mean() - d(r).mean()
        loss.backward()
        optimizer.step()
        log(loss)
        for p in d.parameters():
            p.data.clamp_(-0.05, 0.05)


@healthy
def weight_norm_spectral(log):
    model = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8)),
        nn.ReLU(),
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)),
    )
    fit(log, model, classify, pairs())


@healthy
def update_by_hand(log):
    model = mlp()
    for x, y in pairs():
        loss = classify(model, x, y)
        model.zero_grad()
        loss.backward()
        log(loss)
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad


@healthy
def functional_grad(log):
    model = mlp()
    ps = dict(model.named_parameters())
    ps = {step: v.detach().clone() for step, v in ps.items()}

    def f(ps, x, y):
        return F.cross_entropy(torch.func.functional_call(model, ps, (x,)), y)

    for x, y in pairs():
        g, loss = torch.func.grad_and_value(f)(ps, x, y)
        ps = {step: v - 0.1 * g[step] for step, v in ps.items()}
        log(loss)


@healthy
def adversarial_example(log):
    model = mlp()
    for x, y in pairs():
        x = x.requires_grad_()
        loss = classify(model, x, y)
        loss.backward()
        log(loss, x.grad)
        model.zero_grad()


@healthy
def hooks_that_collect(log):
    model = mlp()
    got = []
    seen = {"n": 0}

    def count(mod, i, optimizer):
        seen["n"] += 1

    model[1].register_forward_hook(count)
    model[0].register_full_backward_hook(lambda mod, gi, go: got.append(go[0].norm().item()))
    fit(log, model, classify, pairs())
    log(*got, seen["n"])


@healthy
def large_ids_as_sentinels(log):
    def loss(model, x, y):
        d = torch.full((8, 3), 1e30)
        out = model(x)
        d[torch.arange(8), y] = out.gather(1, y[:, None]).squeeze(1)
        return d.min(-1).values.square().mean()

    fit(log, mlp(), loss, pairs())


@healthy
def focal_with_floor(log):
    def loss(model, x, y):
        p = model(x).softmax(-1).gather(1, y[:, None]).clamp(1e-6, 1 - 1e-6)
        return -((1 - p) ** 0.5 * p.log()).mean()

    fit(log, mlp(), loss, pairs())


@healthy
def scheduler_free_and_lookahead(log):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-1)
    slow = [p.detach().clone() for p in model.parameters()]
    for step, (x, y) in enumerate(pairs(8)):
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()
        log(loss)
        if step % 3 == 2:
            with torch.no_grad():
                for s, p in zip(slow, model.parameters(), strict=False):
                    s.lerp_(p, 0.5)
                    p.copy_(s)


@healthy
def validation_with_nan_metric(log):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-1)
    for _step, (x, y) in enumerate(pairs(8)):
        model.train()
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()
        log(loss)
        model.eval()
        with torch.no_grad():
            out = model(x)
            auc = torch.zeros(1) / torch.zeros(1)
            (out / auc).mean()


@healthy
def inference_mode_teacher(log):
    t = mlp().eval()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-1)
    for x, _y in pairs(6):
        with torch.inference_mode():
            out = t(x)
        optimizer.zero_grad()
        loss = F.kl_div(model(x).log_softmax(-1), out.clone().softmax(-1), reduction="batchmean")
        loss.backward()
        optimizer.step()
        log(loss)


@pytest.mark.parametrize("run", PROGRAMS)
def test_nothing_is_reported_and_nothing_changes(loud_issues_of, run):
    assert not [f"{issue.rule} {issue.message}" for issue in loud_issues_of(run)]
