"""Losses that are never differentiated: the loop looks at them and is left before ``backward``."""

import math

import pytest
import torch
from origin_programs import Programs, lines_of
from torch import nn
from torch.nn import functional as F

LATE = 37  # deep in a calm loop

program = PROGRAMS = Programs()


class Pooled(nn.Module):
    """Means over those that a mask leaves."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x, mask):
        return self.head((x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def batch(step, bad_step, sample=2):
    x, mask = torch.randn(5, 6, 4), torch.ones(5, 6)
    if step == bad_step:
        mask[sample] = 0.0
    return x, mask, torch.randint(3, (5,))


@program("NUM103", "loss", "log", 3)
def left_by_break(log):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(6):
        p = model(torch.randn(5, 4)).softmax(1)
        if step == 3:
            p = p * torch.tensor([0.0, 1.0, 1.0])
        loss = -p.log().mean()  # born
        if not torch.isfinite(loss):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM103", "loss", "log", 0)
def raised_in_the_first_step(log):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    p = model(torch.randn(5, 4)).softmax(1) * torch.tensor([0.0, 1.0, 1.0])
    loss = -p.log().mean()  # born
    try:
        if math.isinf(loss.item()):
            raise FloatingPointError
        loss.backward()
        optimizer.step()
    except FloatingPointError:
        log(loss)


def squared_logarithm(output):
    return output.square().sum(1).log().square().mean()  # helper


@program("NUM103", "loss", "log", LATE, sample=4)
def returned_late_with_a_loss_of_a_helper(log):
    model = nn.Linear(4, 3, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(LATE + 3):
        x = torch.randn(5, 4)
        if step == LATE:
            x[4] = 0.0
        loss = squared_logarithm(model(x))
        if torch.isinf(loss):
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(loss)


@program("NUM103", "loss", "div", 2)
def left_between_micro_batches(log):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(4):
        optimizer.zero_grad()
        for micro in range(3):
            keep = torch.rand(6) > (2.0 if (step, micro) == (2, 1) else -1.0)
            y = torch.arange(6) % 3
            losses = F.cross_entropy(model(torch.randn(6, 4)), y, reduction="none")
            loss = (losses * keep).sum() / keep.sum()  # born
            if loss.isnan():
                return
            (loss / 3).backward()
        optimizer.step()
        log(loss)


@program("NUM105", "optimizer", "SGD.step", 1)
def left_because_the_weights_ran_away(log):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(4):
        optimizer.param_groups[0]["lr"] = 1e30 if step == 1 else 1e-3
        loss = model(torch.randn(5, 4)).square().mean()
        if not loss.isfinite():
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # born
        log(loss)


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_a_loss_that_is_never_differentiated_is_explained(loud_issues_of, run, expected):
    rule, phase, op, step, place = expected
    (issue,) = [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM10")]
    found = (issue.rule, issue.phase, issue.where.op, issue.step)
    assert found == (rule, phase, op, step), issue.message
    assert all(getattr(issue.where, name) == value for name, value in place.items()), issue.where
    assert not lines_of(run) or issue.where.line in lines_of(run), issue.message


def test_the_module_and_sample_are_named(loud_issues_of):
    def run(log):
        model = Pooled()
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for step in range(6):
            x, mask, y = batch(step, bad_step=3)
            loss = F.cross_entropy(model(x, mask), y)
            if torch.isnan(loss):
                break
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log(loss)

    (issue,) = [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM10")]
    found = (issue.rule, issue.where.op, issue.where.module, issue.where.sample, issue.step)
    assert found == ("NUM101", "div", "", 2, 3)


def converged(log):
    """Leaves the loop between loss and backward with a metric that overflows."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(8):
        loss = model(torch.randn(5, 4)).square().mean()
        perplexity = (loss * 1e4).exp()
        if step == 5:
            log(perplexity)
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluated_with_gradients(log):
    model = Pooled()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(6):
        x, mask, y = batch(step, bad_step=None)
        loss = F.cross_entropy(model(x, mask), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, mask, y = batch(0, bad_step=0)
    log(F.cross_entropy(model(x, mask), y))


def passed_over_in_the_last_round(log):
    model = Pooled()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(6):
        x, mask, y = batch(step, bad_step=5)
        loss = F.cross_entropy(model(x, mask), y)
        if loss.isnan():
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(loss)


def validated_without_gradients(log):
    model = Pooled()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(6):
        for training in (True, False):
            x, mask, y = batch(step, bad_step=None if training else 5)
            with torch.set_grad_enabled(training):
                loss = F.cross_entropy(model(x, mask), y)
            if training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            log(loss)


def left_with_a_finite_loss(log):
    model = nn.Linear(4, 6)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    for step in range(8):
        output = model(torch.randn(5, 4)).masked_fill(torch.arange(6) > 3, float("-inf"))
        worst = output.min()
        loss = -output.log_softmax(1)[:, 0].mean()
        if step == 6 and worst < 0:
            log(loss)
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize(
    "run",
    [
        converged,
        evaluated_with_gradients,
        passed_over_in_the_last_round,
        validated_without_gradients,
        left_with_a_finite_loss,
    ],
)
def test_what_was_not_going_to_be_differentiated_is_no_loss(loud_issues_of, run):
    assert not [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM10")]
