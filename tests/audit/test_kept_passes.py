"""AUD502: one pass over a loader that shuffles, kept and given again for ever."""

import itertools
from itertools import cycle

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def loader(samples=40, shuffle=True, size=8):
    x = torch.randn(samples, 6)
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), size, shuffle=shuffle)


def forever(batches):
    while True:
        yield from batches


def one_by_one(endless, batches, steps):
    """A plain loop over ``next``."""
    model = nn.Linear(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    stream = endless(batches)
    for _ in range(steps):
        x, y = next(stream)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def beside_a_longer_one(endless, batches, steps):
    """A small labelled set beside a large one without labels."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters())
    for (x, y), (other, _) in zip(endless(batches), loader(8 * steps), strict=False):
        probabilities = model(other).softmax(1)
        entropy = -(probabilities * probabilities.log()).sum(1).mean()
        optimizer.zero_grad()
        (F.cross_entropy(model(x), y) + 0.1 * entropy).backward()
        optimizer.step()


@pytest.mark.parametrize("train", [one_by_one, beside_a_longer_one])
@pytest.mark.parametrize("endless", [itertools.cycle, cycle, forever])
def test_a_pass_that_is_kept(audited, train, endless):
    issues = audited(lambda: train(endless, loader(), 20))

    expected = [] if endless is forever else [("AUD502", "medium")]
    assert [(issue.rule, issue.severity.label) for issue in issues] == expected
    for issue in issues:
        assert "5 batches" in issue.message
        assert issue.where.file.endswith("test_kept_passes.py")


@pytest.mark.parametrize(
    ("batches", "steps", "rules"),
    [
        (loader(), 7, []),
        (loader(), 8, ["AUD502"]),
        (loader(shuffle=False), 20, []),
        (loader(samples=16), 20, []),
    ],
    ids=["two steps into it", "three steps into it", "in order", "two batches"],
)
def test_only_what_is_given_again_counts(audited, batches, steps, rules):
    issues = audited(lambda: one_by_one(cycle, batches, steps))
    assert [issue.rule for issue in issues] == rules
