"""AUD408: padding among the targets of a loss over classes."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

PAD = 0


def sentences(pad=PAD, tokens=20, width=12, rows=6):
    """Shape ``[rows, width]``: tokens above 1, and a tail of ``pad`` in most rows."""
    ids = torch.randint(2, tokens, (rows, width))
    for row, length in enumerate(torch.randint(4, width - 1, (rows,))):
        ids[row, length:] = pad
    return ids


class Language(nn.Module):
    def __init__(self, pad=PAD):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(20, 8, padding_idx=pad), nn.GRU(8, 8, batch_first=True)
        self.out = nn.Linear(8, 20)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


def next_token(criterion, steps=6):
    model = Language()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        ids = sentences()
        optimizer.zero_grad()
        criterion(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()


def tagging(criterion, steps=6):
    """A class-based tagger with one label per token, and two-dimensional targets."""
    model = Language(pad=1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        ids = sentences(pad=1)
        labels = torch.where(ids == 1, 1, ids // 2 + 2)
        optimizer.zero_grad()
        criterion(model(ids).log_softmax(-1).transpose(1, 2), labels).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("program", "faulty", "healthy"),
    [
        (next_token, nn.CrossEntropyLoss(), nn.CrossEntropyLoss(ignore_index=PAD)),
        (tagging, nn.NLLLoss(reduction="sum"), nn.NLLLoss(reduction="sum", ignore_index=1)),
    ],
)
def test_padding_is_no_target(audited, program, faulty, healthy):
    issues = audited(lambda: program(faulty))

    assert [(issue.rule, issue.severity.label) for issue in issues] == [("AUD408", "medium")]
    assert "padding_idx" in issues[0].message
    assert audited(lambda: program(healthy)) == []


def without_padding(logits, targets):
    each = F.cross_entropy(logits, targets, reduction="none")
    counts = (targets != PAD).float()
    return (each * counts).sum() / counts.sum()


def weighted(logits, targets):
    return F.cross_entropy(logits, targets, weight=(torch.arange(20) != PAD).float())


@pytest.mark.parametrize("criterion", [without_padding, weighted])
def test_padding_that_a_mask_or_weight_leaves_out(audited, criterion):
    assert audited(lambda: next_token(criterion)) == []


def test_an_index_that_stands_between_tokens_is_a_token(audited):
    def program():
        model = Language()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(6):
            ids = torch.randint(0, 20, (6, 12))
            optimizer.zero_grad()
            F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
            optimizer.step()

    assert "AUD408" not in [issue.rule for issue in audited(program)]


def test_two_steps_are_not_enough(audited):
    assert audited(lambda: next_token(nn.CrossEntropyLoss(), steps=2)) == []
    assert len(audited(lambda: next_token(nn.CrossEntropyLoss(), steps=3))) == 1
