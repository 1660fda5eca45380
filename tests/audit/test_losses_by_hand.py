"""AUD403 and AUD405 for losses that leave no operator of their own: kl_div, likelihoods by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def rules_of(issues):
    return sorted({issue.rule for issue in issues})


def net(outputs):
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, outputs))


def training(loss_fn, steps=4):
    def program():
        model = net(3)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for x in torch.randn(steps, 16, 6):
            optimizer.zero_grad()
            loss_fn(model(x), x[:, :3].argmax(-1)).backward()
            optimizer.step()

    return program


def divergence(inputs_of):
    def loss_fn(scores, y):
        return F.kl_div(inputs_of(scores), F.one_hot(y, 3) * 0.7 + 0.1, reduction="batchmean")

    return loss_fn


@pytest.mark.parametrize(
    ("inputs_of", "found"),
    [
        (lambda scores: scores.softmax(1), ["AUD403"]),
        (lambda scores: scores, ["AUD403"]),
        (lambda scores: scores.log_softmax(1), []),
        (lambda scores: scores.softmax(1).log(), []),
    ],
)
def test_a_divergence_expects_logarithms(audited, inputs_of, found):
    loss_fn = divergence(inputs_of)
    assert rules_of(audited(training(loss_fn))) == found


def picked(log_probabilities_of, how):
    def loss_fn(scores, y):
        given = log_probabilities_of(scores)
        if how == "gather":
            return -given.gather(1, y[:, None]).mean()
        return -given[torch.arange(len(y)), y].mean()

    return loss_fn


@pytest.mark.parametrize("how", ["gather", "index"])
@pytest.mark.parametrize(("axis", "found"), [(0, ["AUD405"]), (1, [])])
def test_a_likelihood_by_hand(audited, how, axis, found):
    for log_probabilities_of in (
        lambda scores: scores.log_softmax(axis),
        lambda scores: scores.softmax(axis).log(),
    ):
        loss_fn = picked(log_probabilities_of, how)
        issues = audited(training(loss_fn))
        assert [rule for rule in rules_of(issues) if rule != "AUD406"] == found


def test_the_logarithm_may_come_last(audited):
    def loss_fn(scores, y):
        return -scores.softmax(0)[torch.arange(len(y)), y].log().mean()

    assert "AUD405" in rules_of(audited(training(loss_fn)))


def test_a_square_of_similarities_may_be_normalised_both_ways(audited):
    def loss_fn(scores, y):
        similarity = scores @ scores.t()
        right = torch.arange(len(y))[:, None]
        return -sum(similarity.log_softmax(axis).gather(1, right).mean() for axis in (0, 1))

    assert rules_of(audited(training(loss_fn))) == []
