"""AUD302: dropout that evaluation mode does not reach."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Functional(nn.Module):
    def __init__(self, wired):
        super().__init__()
        self.first, self.last, self.wired = nn.Linear(6, 16), nn.Linear(16, 3), wired

    def forward(self, x):
        hidden = self.first(x).relu()
        hidden = F.dropout(hidden, 0.3, self.training) if self.wired else F.dropout(hidden, 0.3)
        return self.last(hidden)


class OtherName(Functional):
    def forward(this, x):
        return super().forward(x) if this.wired else this.last(F.dropout(this.first(x), 0.3))


class MadeInForward(nn.Module):
    def __init__(self, wired):
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 3)
        self.drop = nn.Dropout(0.3) if wired else None

    def forward(self, x):
        drop = self.drop or nn.Dropout(0.3)
        return self.last(drop(self.first(x)))


class Attention(nn.Module):
    def __init__(self, wired):
        super().__init__()
        self.mix, self.last, self.wired = nn.Linear(6, 24), nn.Linear(8, 3), wired

    def forward(self, x):
        query, key, value = self.mix(x[:, None, :]).chunk(3, -1)
        share = 0.3 if self.training or not self.wired else 0.0
        hidden = F.scaled_dot_product_attention(query, key, value, dropout_p=share)
        return self.last(hidden[:, 0])


def run(model, evaluate):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model.train()
        for _ in range(4):
            x = torch.randn(8, 6)
            optimizer.zero_grad()
            F.cross_entropy(model(x), x[:, :3].argmax(-1)).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            evaluate(model)


def two_batches(model):
    model(torch.randn(8, 6))
    model(torch.randn(8, 6))


def loud(issues):
    return [issue.rule for issue in issues if issue.severity.label != "info"]


@pytest.mark.parametrize("kind", [Functional, OtherName, MadeInForward, Attention])
@pytest.mark.parametrize("wired", [False, True])
def test_dropout_in_evaluation_mode(audited, kind, wired):
    assert loud(audited(lambda: run(kind(wired), two_batches))) == ([] if wired else ["AUD302"])


def test_the_message_names_the_module_and_the_call(audited):
    (issue,) = audited(lambda: run(Functional(False), two_batches))
    assert "Functional dropped values all the same" in issue.message
    assert "F.dropout without training=self.training" in issue.message


def test_one_batch_is_not_enough(audited):
    assert loud(audited(lambda: run(Functional(False), lambda m: m(torch.randn(8, 6))))) == []


def test_repeated_batches_are_meant(audited):
    def repeat(model):
        for x in torch.randn(2, 8, 6):
            torch.stack([model(x) for _ in range(4)]).std(0)

    assert loud(audited(lambda: run(Functional(False), repeat))) == []


def test_registered_dropout_that_was_switched_on_is_meant(audited):
    def switched_on(model):
        model[1].train()
        two_batches(model)

    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.Linear(16, 3))
    assert loud(audited(lambda: run(model, switched_on))) == []
