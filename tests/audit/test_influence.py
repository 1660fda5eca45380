"""AUD406 and AUD407: what the oracles measure."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_guard.families.influence import is_shifted


def found(issues):
    rules = ("AUD406", "AUD407")
    return [(issue.rule, issue.severity.label) for issue in issues if issue.rule in rules]


def train(model, make_batch, loss_of, steps=5):
    def program():
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(steps):
            inputs, target = make_batch()
            optimizer.zero_grad()
            loss_of(model(*inputs), target).backward()
            optimizer.step()

    return program


class Recurrent(nn.Module):
    """Batch-first data in a network that takes the first axis for time, unless told so."""

    def __init__(self, batch_first):
        super().__init__()
        self.body = nn.GRU(4, 8, batch_first=batch_first)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


def sequences():
    x = torch.randn(12, 7, 4)
    return (x,), x[:, :, :3].mean(1).argmax(-1)


def test_a_recurrent_net_that_runs_over_the_batch(audited):
    model = Recurrent(batch_first=False)
    assert found(audited(train(model, sequences, F.cross_entropy))) == [("AUD406", "medium")]


def test_a_reshape_that_mixes_samples(audited):
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            return self.head(x.reshape(7, 12, 4).mean(0))

    class Trainer:
        def __init__(self):
            self.model = Mixing()
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

        def run(self):
            for _ in range(5):
                (x,), y = sequences()
                F.cross_entropy(self.model(x), y).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()

    assert found(audited(lambda: Trainer().run())) == [("AUD406", "medium")]


def test_samples_that_are_kept_apart(audited):
    model = Recurrent(batch_first=True)
    assert found(audited(train(model, sequences, F.cross_entropy))) == []
    normalised = nn.Sequential(nn.Flatten(), nn.Linear(28, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    assert found(audited(train(normalised, sequences, F.cross_entropy))) == []


def test_a_model_with_the_batch_on_the_second_axis(audited):
    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.GRU(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.body(x)[0])

    def make_batch():
        x = torch.randn(7, 12, 4)
        return (x,), x[:, :, :3].argmax(-1)

    def loss_of(output, target):
        return F.cross_entropy(output.reshape(-1, 3), target.reshape(-1))

    assert found(audited(train(TimeFirst(), make_batch, loss_of))) == []


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x, adjacency):
        return self.head(adjacency @ x)


def test_a_graph_network_is_only_a_note(audited):
    def make_batch():
        x = torch.randn(10, 6)
        return (x, torch.rand(10, 10)), x[:, :3].argmax(-1)

    assert found(audited(train(Graph(), make_batch, F.cross_entropy))) == [("AUD406", "info")]


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(16, 8)
        self.mix, self.head = nn.Linear(8, 24), nn.Linear(8, 11)
        self.causal = causal

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        q, k, v = self.mix(x).chunk(3, -1)
        return self.head(x + F.scaled_dot_product_attention(q, k, v, is_causal=self.causal))


def flat(logits, target):
    return F.cross_entropy(logits.reshape(-1, 11), target.reshape(-1))


def transposed(logits, target):
    return F.cross_entropy(logits.transpose(1, 2), target)


def text():
    tokens = torch.randint(0, 11, (6, 13))
    return (tokens[:, :-1],), tokens[:, 1:]


@pytest.mark.parametrize("loss_of", [flat, transposed])
@pytest.mark.parametrize(("causal", "verdict"), [(False, [("AUD407", "high")]), (True, [])])
def test_attention_that_sees_the_future(audited, loss_of, causal, verdict):
    assert found(audited(train(Attention(causal), text, loss_of))) == verdict


@pytest.mark.parametrize(("padding", "verdict"), [("same", [("AUD407", "high")]), ("left", [])])
def test_a_convolution_that_sees_the_future(audited, padding, verdict):
    class Convolution(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)
            self.body = nn.Conv1d(8, 8, 3)

        def forward(self, tokens):
            x = self.words(tokens).transpose(1, 2)
            x = F.pad(x, (1, 1) if padding == "same" else (2, 0))
            return self.head(self.body(x).transpose(1, 2))

    def shifted_inside(logits, target):
        return F.cross_entropy(logits[:, :-1].reshape(-1, 11), target[:, 1:].reshape(-1))

    def make_batch():
        tokens = torch.randint(0, 11, (6, 13))
        return (tokens,), tokens

    assert found(audited(train(Convolution(), make_batch, shifted_inside))) == verdict


class WithLoss(nn.Module):
    """Computes its own loss from inputs that are its labels, and returns nothing else."""

    def __init__(self, causal):
        super().__init__()
        self.body = Attention(causal)

    def forward(self, tokens, labels):
        return flat(self.body(tokens)[:, :-1], labels[:, 1:])


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize(("causal", "verdict"), [(False, [("AUD407", "high")]), (True, [])])
def test_a_loss_inside_the_model(audited, causal, verdict, passes):
    def program():
        model = WithLoss(causal)
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(5):
            for _ in range(passes):
                tokens = torch.randint(0, 11, (6, 13))
                (model(tokens=tokens, labels=tokens) / passes).backward()
            optimizer.step()
            optimizer.zero_grad()

    assert found(audited(program)) == verdict


@pytest.mark.parametrize(("causal", "verdict"), [(False, [("AUD407", "high")]), (True, [])])
def test_layers_of_torch(audited, causal, verdict):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.words, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)
            self.body = nn.TransformerEncoder(layer, 1)

        def forward(self, tokens):
            hidden = torch.ones(tokens.shape[1], tokens.shape[1]).triu(1).bool()
            return self.head(self.body(self.words(tokens), hidden if causal else None))

    assert found(audited(train(Encoder(), text, flat))) == verdict


def test_a_mask_that_lets_one_position_through(audited):
    class Late(Attention):
        def forward(self, tokens):
            x = self.words(tokens)
            seen = torch.ones(tokens.shape[1], tokens.shape[1]).tril(1).bool()
            q, k, v = self.mix(x).chunk(3, -1)
            return self.head(x + F.scaled_dot_product_attention(q, k, v, attn_mask=seen))

    assert found(audited(train(Late(True), text, flat))) == [("AUD407", "high")]


@pytest.mark.parametrize("batch_first", [False, True])
def test_attention_over_the_batch(audited, batch_first):
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.TransformerEncoderLayer(12, 2, 12, batch_first=batch_first)
            self.head = nn.Linear(12, 3)

        def forward(self, x):
            return self.head(self.body(x).mean(1))

    def make_batch():
        x = torch.randn(12, 7, 12)
        return (x,), x[:, :, :3].mean(1).argmax(-1)

    verdict = [] if batch_first else [("AUD406", "medium")]
    assert found(audited(train(Pooled(), make_batch, F.cross_entropy))) == verdict


def test_a_masked_model_may_see_both_sides(audited):
    def make_batch():
        tokens = torch.randint(1, 11, (6, 13))
        hidden = torch.rand(6, 13) < 0.3
        return (tokens.masked_fill(hidden, 0),), tokens.masked_fill(~hidden, -100)

    assert found(audited(train(Attention(False), make_batch, flat))) == []


@pytest.mark.parametrize(
    ("target", "shifted"),
    [
        ([[2, 3, 4, 9]], True),
        ([[2, 3, 4]], True),
        ([[-100, 3, 4, 9]], True),
        ([[1, 2, 3, 4]], False),
        ([[2, 3, 5, 9]], False),
        ([[-100, -100, -100, -100]], False),
    ],
)
def test_targets_declare_causality(target, shifted):
    assert is_shifted(torch.tensor([[1, 2, 3, 4]]), torch.tensor(target)) is shifted


def test_the_measurement_leaves_no_trace(audited):
    class Counting(Recurrent):
        calls = 0

        def forward(self, x):
            self.calls += 1
            print("called")
            return super().forward(x) + random.random() + torch.rand(())

    def run():
        torch.manual_seed(3)
        random.seed(3)
        model = Counting(batch_first=True)
        train(model, sequences, F.cross_entropy)()
        return model.calls, [p.sum().item() for p in model.parameters()], random.random()

    plain, watched = run(), []
    audited(lambda: watched.append(run()))
    assert watched == [plain]
