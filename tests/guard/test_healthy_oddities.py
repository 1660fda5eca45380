"""Programs with NaN, infinities and sentinels that are healthy: nothing is reported or changed."""

import math
import threading

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
def nan_padding_masked(log):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x, n):
            keep = torch.arange(5)[None] < n[:, None]
            return self.layer(torch.where(keep[..., None], x, 0.0).sum(1) / n[:, None])

    model = Net()
    batches = []
    for _ in range(6):
        x = torch.randn(4, 5, 6)
        n = torch.randint(1, 5, (4,))
        for i in range(4):
            x[i, n[i] :] = math.nan
        batches.append((x, n, torch.randint(0, 3, (4,))))
    fit(log, model, lambda model, x, n, y: F.cross_entropy(model(x, n), y), batches)


@healthy
def nan_targets_select(log):
    model = nn.Linear(6, 1)
    batches = []
    for x, _ in pairs():
        t = torch.randn(8, 1)
        t[torch.rand(8) < 0.3] = math.nan
        t[0] = 1
        batches.append((x, t))

    def loss(model, x, t):
        ok = ~t.isnan()
        return (model(x)[ok] - t[ok]).square().mean()

    fit(log, model, loss, batches)


@healthy
def nanmean_metric(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for _step, (x, y) in enumerate(pairs()):
        per = torch.full((4,), math.nan)
        for c in y.unique():
            per[c] = x[y == c].mean()
        acc = torch.nanmean(per)
        optimizer.zero_grad()
        loss = classify(model, x, y) + 0 * acc
        loss.backward()
        optimizer.step()
        log(loss)


@healthy
def log_line_divides_by_zero(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for _step, (x, y) in enumerate(pairs()):
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        ratio = (out.argmax(-1) == y).float().sum() / (y == 5).float().sum()
        str(ratio.item())
        loss.backward()
        optimizer.step()
        log(loss)


@healthy
def nan_in_a_thread(log):
    model = nn.Linear(6, 3)

    def work():
        for _ in range(20):
            torch.zeros(4) / torch.zeros(4)

    t = threading.Thread(target=work)
    t.start()
    fit(log, model, classify, pairs())
    t.join()


@healthy
def inf_min_reduction(log):
    model = nn.Linear(6, 4)

    def loss(model, x, y):
        out = model(x)
        d = (out[:, None] - out[None]).square().sum(-1)
        d = d.masked_fill(torch.eye(8, dtype=torch.bool), math.inf)
        return d.min(-1).values.mean()

    fit(log, model, loss, pairs())


@healthy
def triplet_hardest(log):
    model = nn.Linear(6, 4)

    def loss(model, x, y):
        out = F.normalize(model(x), dim=-1)
        d = torch.cdist(out, out)
        same = y[:, None] == y[None]
        pos = d.masked_fill(~same, -math.inf).max(-1).values
        neg = d.masked_fill(same, math.inf).min(-1).values
        v = (pos - neg + 0.2).relu()
        ok = torch.isfinite(v)
        return v[ok].sum() / ok.sum().clamp(min=1)

    fit(log, model, loss, pairs(size=16))


@healthy
def best_so_far(log):
    best = torch.tensor(math.inf)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for x, y in pairs():
        optimizer.zero_grad()
        loss = classify(model, x, y)
        loss.backward()
        optimizer.step()
        best = torch.minimum(best, loss.detach())
        log(loss)
    log(best)


@healthy
def user_skips_bad_loss(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step, (x, y) in enumerate(pairs()):
        if step == 2:
            x = x * math.inf
        optimizer.zero_grad()
        loss = classify(model, x, y)
        if not torch.isfinite(loss):
            continue
        loss.backward()
        optimizer.step()
        log(loss)


@healthy
def manual_scaler_backs_off(log):
    model = nn.Linear(6, 1).half()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    scale = 2.0**17
    for x, _ in pairs(10):
        optimizer.zero_grad()
        loss = (model(x.half()).float() - 1).square().mean()
        (loss * scale).backward()
        if not all(torch.isfinite(p.grad).all() for p in model.parameters()):
            scale /= 4
            continue
        for p in model.parameters():
            p.grad.div_(scale)
        optimizer.step()
        log(loss)


@healthy
def additive_mask_buffer(log):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.full((5, 5), -math.inf).triu(1))
            self.q = nn.Linear(6, 6)
            self.h = nn.Linear(6, 3)

        def forward(self, x):
            a = (self.q(x) @ x.transpose(1, 2) + self.mask).softmax(-1)
            return self.h((a @ x).mean(1))

    fit(log, Net(), classify, [(torch.randn(4, 5, 6), torch.randint(0, 3, (4,))) for _ in range(5)])


@healthy
def sdpa_bool_mask_and_mha(log):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.h = nn.Linear(8, 3)

        def forward(self, x, p):
            return self.h(self.a(x, src_key_padding_mask=p).mean(1))

    model = Net()
    batches = []
    for _ in range(5):
        p = torch.zeros(4, 5, dtype=torch.bool)
        p[:, 3:] = True
        batches.append((torch.randn(4, 5, 8), p, torch.randint(0, 3, (4,))))
    fit(log, model, lambda model, x, p, y: F.cross_entropy(model(x, p), y), batches)


@healthy
def top_k_and_top_p(log):
    def loss(model, x, y):
        out = model(x)
        step = out.topk(2, -1).values[:, -1:]
        return F.cross_entropy(
            out.masked_fill(out < step, -math.inf).scatter(
                1, y[:, None], out.gather(1, y[:, None])
            ),
            y,
        )

    fit(log, mlp(), loss, pairs())


@healthy
def beam_start_at_minus_inf(log):
    model = nn.Linear(6, 3)

    def loss(model, x, y):
        out = model(x).log_softmax(-1)
        s = torch.full((8, 3), -math.inf)
        s[:, 0] = 0
        for _ in range(3):
            s = torch.logsumexp(s[:, :, None] + out[:, None, :], 1)
        return -s.logsumexp(-1).mean() + (-out.gather(1, y[:, None])).mean()

    fit(log, model, loss, pairs())


@healthy
def ctc_zero_infinity(log):
    model = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _step in range(5):
        x = torch.randn(4, 3, 6)
        t = torch.randint(1, 5, (3, 4))
        n = torch.tensor([1, 2, 4])
        t[2] = 1
        optimizer.zero_grad()
        loss = F.ctc_loss(model(x).log_softmax(-1), t, torch.full((3,), 4), n, zero_infinity=True)
        loss.backward()
        optimizer.step()
        log(loss)


@healthy
def double_where(log):
    def loss(model, x, y):
        h = model(x)
        ok = h > 0
        s = torch.where(ok, h, torch.ones_like(h))
        return torch.where(ok, s.log(), torch.zeros_like(h)).square().mean()

    fit(log, nn.Linear(6, 3), loss, pairs())


@healthy
def xlogy_entropy(log):
    fit(
        log,
        mlp(),
        lambda model, x, y: (
            F.cross_entropy(model(x), y)
            - 0.01
            * torch.special.xlogy((p := model(x).softmax(-1) * (x[:, :3] > 0)), p + 1e-9)
            .sum(-1)
            .mean()
        ),
        pairs(),
    )


@healthy
def empty_uninitialised(log):
    def loss(model, x, y):
        out = torch.empty(8, 3)
        out = model(x)
        out = out.copy_(out.detach()) * 0 + out
        return F.cross_entropy(out, y)

    fit(log, mlp(), loss, pairs())


@pytest.mark.parametrize("run", PROGRAMS)
def test_nothing_is_reported_and_nothing_changes(loud_issues_of, run):
    assert not [f"{issue.rule} {issue.message}" for issue in loud_issues_of(run)]
