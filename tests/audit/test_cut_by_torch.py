"""AUD204: gradients that torch switched off although nobody asked for it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Deep(nn.Module):
    """A checkpointed first block, whose only input is data."""

    def __init__(self, reentrant, marked=False):
        super().__init__()
        self.reentrant, self.marked = reentrant, marked
        self.first = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        x = x.requires_grad_() if self.marked else x
        return self.last(checkpoint(self.first, x, use_reentrant=self.reentrant))


class Adapter(nn.Module):
    """An embedding, frozen or not, before a trained block in a checkpoint."""

    def __init__(self, frozen_embedding):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.block, self.head = nn.Linear(16, 16), nn.Linear(16, 3)
        self.embedding.weight.requires_grad_(not frozen_embedding)

    def forward(self, tokens):
        hidden = checkpoint(self.block, self.embedding(tokens), use_reentrant=True)
        return self.head(hidden.mean(1))


class Noisy(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.draw, self.mean, self.decode = draw, nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.decode(getattr(torch.distributions.Normal(self.mean(x), 0.1), self.draw)())


def trained(model, make_input):
    def program():
        wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.Adam(wanted, 1e-3)
        for _ in range(5):
            x, y = make_input(), torch.randint(0, 3, (8,))
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return program


def rows():
    return torch.randn(8, 6)


def tokens():
    return torch.randint(0, 20, (8, 5))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(
    ("model", "make_input"),
    [(Deep(True), rows), (Adapter(True), tokens)],
    ids=["data", "frozen embedding"],
)
def test_a_reentrant_checkpoint_needs_an_input_with_a_gradient(audited, model, make_input):
    (issue,) = [found for found in audited(trained(model, make_input)) if found.rule == "AUD204"]
    assert issue.severity.label == "high"
    assert "reentrant checkpoint" in issue.message


@pytest.mark.parametrize(
    ("model", "make_input"),
    [(Deep(False), rows), (Deep(True, marked=True), rows), (Adapter(False), tokens)],
    ids=["other kind", "marked input", "trained embedding"],
)
def test_other_checkpoints_are_silent(audited, model, make_input):
    assert audited(trained(model, make_input)) == []


@pytest.mark.parametrize(("draw", "expected"), [("sample", ["medium"]), ("rsample", [])])
def test_a_sample_has_no_gradient(audited, draw, expected):
    issues = audited(trained(Noisy(draw), rows))
    assert [found.severity.label for found in issues if found.rule == "AUD204"] == expected
