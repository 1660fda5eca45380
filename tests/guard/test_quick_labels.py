"""What needs every batch is told of it on the short way, too, and finds what it found before."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_guard import guard
from nabla_guard.loop.express import Express

CHANGED = 30


def found(loss, exchanged=True):
    """Train on two batches in turn; from step 30 on the labels are others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    batches = [(x, x[:, :3].argmax(-1)) for x in torch.randn(2, 8, 6).unbind()]
    taken = []
    with guard(model, optimizer=optimizer, mode="light") as monitor:
        for step in range(40):
            x, y = batches[step % 2]
            if exchanged and step >= CHANGED:
                y = (y + 1) % 3
            optimizer.zero_grad()
            loss(model(x), y).backward()
            taken.append(monitor.session.source.calm.quick is not None)
            optimizer.step()
    assert sum(taken) > 12
    issues = monitor.report().issues
    return [(issue.step, issue.message) for issue in issues if issue.rule == "AUD604"]


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), F.cross_entropy])
def test_labels_that_change_are_found_on_the_short_way(loss, monkeypatch):
    short = found(loss)
    monkeypatch.setattr(Express, "suits", staticmethod(lambda loop: False))
    assert short == found(loss)
    assert [step for step, _ in short] == [CHANGED + 2]


def test_labels_that_stay_are_not_reported():
    assert found(nn.CrossEntropyLoss(), exchanged=False) == []


def test_a_configuration_file_that_changes_is_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = []
    for number in (7, 8, 8):
        (tmp_path / "nabla.toml").write_text(f"max-issues = {number}\n")
        kept.append(guard().session.bounds.max_issues)
    assert kept == [7, 8, 8]
