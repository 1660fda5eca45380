"""A loader in the process of the training: its calls of torch are noted only where they are few."""

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from nabla_guard import guard

MOST_CALLS = 300
"""Of ours in a step with its batch, seldom steps apart; with each sample noted it were 1100."""
BAD = 37


class Points(Dataset):
    """Samples of which one divides by zero, one by one or whole batches at once."""

    def __init__(self, bad=None):
        self.x = torch.randn(96, 6)
        self.bad = bad

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        scale = (torch.as_tensor(index) != (-1 if self.bad is None else self.bad)).float()
        return (x / scale.unsqueeze(-1)), x[..., :3].argmax(-1)


def fit(loader, model, optimizer, epochs=1):
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def test_samples_that_are_made_one_by_one_cost_little(model, monkeypatch):
    monkeypatch.setenv("NABLA_SELECT", "NUM,AUD101")
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Points(), batch_size=16)
    count = 0

    def note(frame, event, _):
        nonlocal count
        count += event == "call" and "nabla_" in frame.f_globals.get("__name__", "")

    with guard(model, optimizer=optimizer, mode="light"):
        fit(loader, model, optimizer, epochs=8)
        sys.setprofile(note)
        try:
            fit(loader, model, optimizer, epochs=8)
        finally:
            sys.setprofile(None)
    assert count / 48 < MOST_CALLS


def bad_step(model, loader):
    optimizer = torch.optim.Adam(model.parameters())
    with guard(model, optimizer=optimizer, mode="light") as monitor:
        fit(loader, model, optimizer)
    (issue,) = [issue for issue in monitor.report().issues if issue.rule.startswith("NUM10")]
    return issue


def test_a_bad_sample_among_many_is_found_in_its_batch(model):
    issue = bad_step(model, DataLoader(Points(BAD), batch_size=16))
    assert (issue.rule, issue.step, issue.where.sample) == ("NUM104", BAD // 16, BAD % 16)


def test_where_a_batch_takes_few_calls_its_line_is_named(model):
    loader = DataLoader(
        Points(BAD),
        sampler=[torch.arange(start, start + 16) for start in range(0, 96, 16)],
        batch_size=None,
    )
    issue = bad_step(model, loader)
    assert (issue.step, issue.where.sample) == (BAD // 16, BAD % 16)
    assert issue.where.op == "div"
    assert issue.where.file.endswith("test_loading_cost.py")


def test_healthy_loaders_are_silent(model):
    optimizer = torch.optim.Adam(model.parameters())
    with guard(model, optimizer=optimizer) as monitor:
        fit(DataLoader(Points(), batch_size=16, shuffle=True), model, optimizer, epochs=2)
    assert not [issue for issue in monitor.report().issues if issue.rule.startswith("NUM")]
