"""AUD207, AUD401, AUD403 and AUD408: losses without a derivative, targets out of reach."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def found(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


def trained(model, loss_of, steps=6):
    def program():
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(steps):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            loss_of(model, x).backward()
            optimizer.step()

    return program


def dense(outputs, *last):
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, outputs), *last)


class Pool(nn.Module):
    """Attention over five positions."""

    def __init__(self, axis):
        super().__init__()
        self.axis = axis
        self.embed, self.score, self.out = nn.Linear(1, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x):
        hidden = self.embed(x.unsqueeze(-1)).tanh()
        return self.out((F.softmax(self.score(hidden), self.axis) * hidden).sum(1))


def positive(x):
    return (x[:, :1] > 0).float()


def one_column(model, x):
    return F.cross_entropy(model(x), positive(x))


def against_itself(model, x):
    output = model(x)
    return F.mse_loss(output, output)


def squared(model, x):
    return F.mse_loss(model(x), x[:, :1])


DEAD = {
    "one unit": (dense(1, nn.Softmax(1)), lambda m, x: F.binary_cross_entropy(m(x), positive(x))),
    "one column": (dense(1), one_column),
    "one score": (Pool(-1), squared),
    "itself": (dense(1), against_itself),
}
ALIVE = {
    "two units": (dense(2), lambda m, x: F.cross_entropy(m(x), positive(x)[:, 0].long())),
    "positions": (Pool(1), squared),
    "input": (dense(6), lambda m, x: F.mse_loss(m(x), x)),
    "pairs": (dense(1), lambda m, x: against_itself(m, x) + squared(m, x)),
}


@pytest.mark.parametrize("name", DEAD)
def test_what_has_no_derivative_whatever_the_values(audited, name):
    assert found(audited(trained(*DEAD[name]))) == [("AUD207", "high")]


@pytest.mark.parametrize("name", ALIVE)
def test_what_has_one(audited, name):
    assert audited(trained(*ALIVE[name])) == []


def drawn_to(anchors):
    def loss_of(model, x):
        kept = anchors(model)
        pairs = zip(model.parameters(), kept, strict=True)
        return squared(model, x) + sum(((p - old) ** 2).sum() for p, old in pairs)

    return loss_of


def test_a_penalty_on_the_distance_of_parameters_to_themselves(audited):
    issues = audited(trained(dense(1), drawn_to(lambda model: list(model.parameters()))))
    assert set(found(issues)) == {("AUD207", "medium")}


def test_a_penalty_on_the_distance_to_copies(audited):
    model = dense(1)
    copies = [p.detach().clone() for p in model.parameters()]
    assert audited(trained(model, drawn_to(lambda _: copies))) == []


def test_a_difference_that_only_touches_parameters(audited):
    def touched(model, x):
        return squared(model, x) + sum((p - p).sum() for p in model.parameters())

    assert audited(trained(dense(1), touched)) == []


def beyond(share):
    """Targets of which this share lies above one."""

    def loss_of(model, x):
        target = torch.full((16, 1), 0.5)
        target[: int(16 * share)] = 7.0
        return F.mse_loss(model(x), target)

    return loss_of


@pytest.mark.parametrize(("share", "rules"), [(0.5, []), (0.5625, [("AUD408", "medium")])])
def test_targets_that_a_sigmoid_cannot_reach(audited, share, rules):
    assert found(audited(trained(dense(1, nn.Sigmoid()), beyond(share)))) == rules


@pytest.mark.parametrize(("scale", "rules"), [(1.0, []), (255.0, [("AUD408", "medium")])])
def test_targets_of_an_absolute_error_with_tanh(audited, scale, rules):
    def loss_of(model, x):
        return F.l1_loss(model(x), scale * x.tanh()) + F.l1_loss(scale * x.tanh(), model(x))

    assert found(audited(trained(dense(6, nn.Tanh()), loss_of))) == rules


def margins(model, x, sign):
    return F.soft_margin_loss(model(x), sign(positive(x)))


def angles(model, x, sign):
    return F.cosine_embedding_loss(model(x), model(x.flip(0)), sign(positive(x)[:, 0]))


def ranks(model, x, sign):
    return F.margin_ranking_loss(model(x), model(x.flip(0)), sign(positive(x)), margin=0.5)


@pytest.mark.parametrize("loss", [margins, angles, ranks])
def test_targets_that_should_be_signs(audited, loss):
    zeros = audited(trained(dense(1), lambda m, x: loss(m, x, lambda y: y)))
    signs = audited(trained(dense(1), lambda m, x: loss(m, x, lambda y: 2 * y - 1)))
    assert (found(zeros), signs) == ([("AUD408", "medium")], [])


@pytest.mark.parametrize("last", [nn.Identity(), nn.LogSoftmax(-1)], ids=["scores", "logs"])
def test_scores_behind_a_temperature_are_no_log_probabilities(audited, last):
    def loss_of(model, x):
        student = last(model(x) / 2.0)
        return F.kl_div(student, x[:, :3].softmax(-1), reduction="batchmean")

    faulty = isinstance(last, nn.Identity)
    assert found(audited(trained(dense(3), loss_of))) == [("AUD403", "high")] * faulty


@pytest.mark.parametrize("twice", [True, False])
def test_probabilities_as_logits_of_a_distribution(audited, twice):
    def loss_of(model, x):
        logits = model(x).softmax(-1) if twice else model(x)
        policy = torch.distributions.Categorical(logits=logits)
        return -(policy.log_prob(policy.sample()) * x[:, 0]).mean()

    assert found(audited(trained(dense(3), loss_of))) == [("AUD401", "medium")] * twice
