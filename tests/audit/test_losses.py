"""AUD401 to 405, 408 and 409 in real programs."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_audit.losses import judge_input
from nabla_guard.families.losses import Feeder, LossInput


def rules_of(issues):
    return sorted({issue.rule for issue in issues})


def first_steps(issues):
    return {issue.rule: issue.step for issue in issues}


def plain_loop(model, loss_fn, make_batch, steps=4):
    """The style of a script."""

    def program():
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(steps):
            x, y = make_batch()
            optimizer.zero_grad()
            loss_fn(model(x), y).backward()
            optimizer.step()

    return program


class Trainer:
    """The style of a framework: accumulation, scheduler, a method for each part."""

    def __init__(self, model, loss_fn, make_batch, accumulate=2):
        self.model, self.loss_fn, self.make_batch = model, loss_fn, make_batch
        self.optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        self.accumulate = accumulate

    def compute_loss(self):
        x, y = self.make_batch()
        return self.loss_fn(self.model(x), y) / self.accumulate

    def train(self, steps=4):
        for _ in range(steps):
            for _ in range(self.accumulate):
                self.compute_loss().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


def trainer(model, loss_fn, make_batch):
    return lambda: Trainer(model, loss_fn, make_batch).train()


def closure(model, loss_fn, make_batch):
    """The style of LBFGS."""

    def program():
        optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=2)
        for _ in range(4):
            x, y = make_batch()

            def evaluate(x=x, y=y):
                optimizer.zero_grad()
                loss = loss_fn(model(x), y)
                loss.backward()
                return loss

            optimizer.step(evaluate)

    return program


STYLES = pytest.mark.parametrize("style", [plain_loop, trainer, closure])


def classes():
    x = torch.randn(16, 6)
    return x, x[:, :3].argmax(-1)


def numbers():
    x = torch.randn(16, 6)
    return x, x[:, 0]


def bits(low=0.0):
    def make():
        x = torch.randn(16, 6)
        return x, torch.where(x[:, :1] > 0, 1.0, low)

    return make


def net(outputs, *tail):
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, outputs), *tail)


@STYLES
def test_softmax_before_cross_entropy(audited, style):
    issues = audited(style(net(3, nn.Softmax(dim=1)), F.cross_entropy, classes))
    assert rules_of(issues) == ["AUD401"]
    assert issues[0].severity.label == "high"
    assert issues[0].evidence["loss_floor"].value == pytest.approx(0.5514, abs=1e-3)


def test_softmax_before_label_smoothing_and_soft_labels(audited):
    def soft(logits, y):
        return F.cross_entropy(logits, F.one_hot(y, 3).float())

    issues = audited(plain_loop(net(3, nn.Softmax(-1)), soft, classes))
    assert [(i.rule, i.severity.label) for i in issues] == [("AUD401", "medium")]
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    issues = audited(plain_loop(net(3, nn.Softmax(-1)), smooth, classes))
    assert rules_of(issues) == ["AUD401"]


def test_log_softmax_twice_and_log_of_softmax_are_harmless(audited):
    assert audited(plain_loop(net(3, nn.LogSoftmax(-1)), F.cross_entropy, classes)) == []

    def log_of(probabilities, y):
        return F.nll_loss(probabilities.log(), y)

    assert audited(plain_loop(net(3, nn.Softmax(-1)), log_of, classes)) == []


@STYLES
def test_sigmoid_before_a_loss_with_logits(audited, style):
    loss_fn = nn.BCEWithLogitsLoss()
    issues = audited(style(net(1, nn.Sigmoid()), loss_fn, bits()))
    assert rules_of(issues) == ["AUD402"]
    assert audited(style(net(1), loss_fn, bits())) == []


def test_sigmoid_is_seen_through_an_index(audited):
    def picked(output, y):
        return F.binary_cross_entropy_with_logits(output[:, 0], y[:, 0])

    issues = audited(plain_loop(net(2, nn.Sigmoid()), picked, bits()))
    assert rules_of(issues) == ["AUD402"]


@STYLES
def test_probabilities_into_a_likelihood(audited, style):
    assert rules_of(audited(style(net(3, nn.Softmax(1)), F.nll_loss, classes))) == ["AUD403"]
    assert audited(style(net(3, nn.LogSoftmax(1)), F.nll_loss, classes)) == []


def test_scores_into_a_likelihood(audited):
    assert rules_of(audited(plain_loop(net(3), nn.NLLLoss(), classes))) == ["AUD403"]


@STYLES
@pytest.mark.parametrize("loss_fn", [F.mse_loss, F.smooth_l1_loss, nn.HuberLoss(), F.l1_loss])
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_target_that_is_broadcast(audited, style, loss_fn):
    issues = audited(style(net(1), loss_fn, numbers))
    assert rules_of(issues) == ["AUD404"]
    assert issues[0].evidence["pairs"].value == 256


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_difference_that_is_broadcast_by_hand(audited):
    def by_hand(prediction, y):
        return ((prediction - y) ** 2).mean()

    issues = audited(plain_loop(net(1), by_hand, numbers))
    assert first_steps(issues) == {"AUD404": 1}


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_broadcasting_that_is_meant(audited):
    def squeezed(prediction, y):
        return F.mse_loss(prediction[:, 0], y)

    def one_value(prediction, y):
        return F.mse_loss(prediction, torch.ones(1))

    def all_pairs(prediction, y):
        return (prediction - prediction[:, 0][None, :]).abs().mean()

    def pairs_by_unsqueeze(prediction, y):
        return (prediction[:, 0].unsqueeze(1) - y).abs().mean()

    for loss_fn in (squeezed, one_value, all_pairs, pairs_by_unsqueeze):
        assert audited(plain_loop(net(1), loss_fn, numbers)) == [], loss_fn.__name__


@STYLES
def test_log_softmax_over_the_batch(audited, style):
    issues = audited(style(net(3, nn.LogSoftmax(dim=0)), F.nll_loss, classes))
    assert "AUD405" in rules_of(issues)
    assert (issues[0].evidence["axis"], issues[0].evidence["class_axis"]) == (0, 1)


def test_softmax_over_the_batch_before_an_elementwise_loss(audited):
    def one_hot(output, y):
        return F.mse_loss(output, F.one_hot(y, 3).float())

    assert "AUD405" in rules_of(audited(plain_loop(net(3, nn.Softmax(0)), one_hot, classes)))
    assert audited(plain_loop(net(3, nn.Softmax(1)), one_hot, classes)) == []


def test_softmax_over_the_batch_as_weights_is_lawful(audited):
    def weighted(output, y):
        return (output.softmax(0) * F.one_hot(y, 3)).sum()

    assert audited(plain_loop(net(3), weighted, classes)) == []


@STYLES
def test_labels_of_minus_one(audited, style):
    issues = audited(style(net(1), F.binary_cross_entropy_with_logits, bits(low=-1.0)))
    assert rules_of(issues) == ["AUD408"]
    assert issues[0].evidence["low"].value == -1.0


@pytest.mark.parametrize("low", [0.0, 0.05])
def test_soft_labels_within_the_range_are_lawful(audited, low):
    assert audited(plain_loop(net(1), F.binary_cross_entropy_with_logits, bits(low))) == []


def ignoring(share, reduction):
    def loss_fn(logits, y):
        kept = int(len(y) * (1 - share))
        labels = y.clone()
        labels[kept:] = -100
        return F.cross_entropy(logits, labels, reduction=reduction)

    return loss_fn


@pytest.mark.parametrize("style", [plain_loop, trainer])
def test_all_targets_ignored_in_a_sum(audited, style):
    issues = audited(style(net(3), ignoring(1.0, "sum"), classes))
    assert "AUD409" in rules_of(issues)
    assert audited(style(net(3), ignoring(0.9, "sum"), classes)) == []


def test_all_targets_ignored_in_a_mean_is_reported_at_once(audited):
    issues = audited(plain_loop(net(3), ignoring(1.0, "mean"), classes, steps=1))
    assert [(i.rule, i.step) for i in issues if i.rule == "AUD409"] == [("AUD409", 0)]


def test_what_a_checkpoint_saves_is_not_read(audited):
    from torch.utils.checkpoint import checkpoint

    calls = []

    def loss_fn(logits, y):
        calls.append(1)
        return F.cross_entropy(logits, y)

    def through_checkpoint(logits, y):
        return checkpoint(loss_fn, logits, y, use_reentrant=False)

    assert audited(plain_loop(net(3), through_checkpoint, classes, steps=3)) == []
    assert len(calls) == 6  # once forward and once recomputed in each step, as without nabla


@pytest.mark.parametrize("axis", [0, 1])
def test_the_axis_of_classes_without_a_batch_is_the_first(axis):
    feeder = Feeder(op="LogSoftmax", axis=axis, shape=(5,) if not axis else (4, 5))
    found = LossInput(loss="NllLoss", feeders=(feeder,), shape=feeder.shape, given=feeder.shape)
    assert list(judge_input(found)) == []
