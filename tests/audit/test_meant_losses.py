"""Losses that look like a fault and are meant, each beside the fault that it looks like."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def train(loss_of, *modules, steps=5):
    held = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.SGD(held, 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(torch.randn(16, 6)).backward()
        optimizer.step()


def loud(issues):
    return sorted({issue.rule for issue in issues if issue.severity.label != "info"})


def absent_labels(kind):
    net = nn.Linear(6, 4)

    def loss_of(x):
        target = (x[:, :4] > 0).float()
        target[torch.rand_like(target) < 0.5] = -1.0
        known = (target >= 0).float()
        if kind == "weight":
            return F.binary_cross_entropy_with_logits(net(x), target, weight=known)
        each = F.binary_cross_entropy_with_logits(net(x), target, reduction="none")
        if kind == "index":
            return each[known > 0].mean()
        return (each * known).sum() / known.sum() if kind == "mask" else each.sum(1).mean()

    train(loss_of, net)


def blurred_labels(kind):
    net = nn.Linear(6, 1)
    low = 0.7 if kind == "blurred" else 1.0
    wide = 0.5 if kind == "blurred" else 1.0
    train(lambda x: F.binary_cross_entropy_with_logits(net(x), low + wide * torch.rand(16, 1)), net)


def pairs(kind):
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16 if kind == "batch" else 1))

    def loss_of(x):
        if kind == "batch":  # quantiles of one sample against quantiles of its target
            given, wanted = net(x).unsqueeze(2), torch.randn(16, 1, 16)
            return F.smooth_l1_loss(given, wanted, reduction="none").sum(1).mean()
        if kind == "kernel":
            return torch.exp(-((net(x) - torch.randn(16, 1).T) ** 2)).mean()
        if kind == "flat":
            return F.smooth_l1_loss(net(x), x[:, 0])
        return ((net(x) - x[:, 0]) ** 2).mean()

    train(loss_of, net)


def scores(kind):
    net = nn.Linear(6, 3)

    def loss_of(x):
        given = net(x)
        picked = F.nll_loss(given, x[:, :3].argmax(1))
        return picked + given.logsumexp(1).mean() if kind == "normalised" else picked

    train(loss_of, net)


@pytest.mark.parametrize(
    ("program", "kind", "found"),
    [
        (absent_labels, "mask", []),
        (absent_labels, "weight", []),
        (absent_labels, "index", []),
        (absent_labels, "all", ["AUD408"]),
        (blurred_labels, "blurred", []),
        (blurred_labels, "counts", ["AUD408"]),
        (pairs, "batch", []),
        (pairs, "kernel", []),
        (pairs, "flat", ["AUD404"]),
        (pairs, "by hand", ["AUD404"]),
        (scores, "normalised", []),
        (scores, "raw", ["AUD403"]),
    ],
)
def test_what_is_meant_is_told_from_the_fault(audited, program, kind, found):
    assert loud(audited(lambda: program(kind))) == found
