"""Loops that are left between a bad backward pass and its step, or that never step at all."""

import math

import pytest
import torch
from origin_programs import Programs, lines_of
from torch import nn

LATE = 37  # deep in a calm loop

program = PROGRAMS = Programs()


class Logarithm(nn.Module):
    def forward(self, x):
        return x.abs().log()


def net():
    return nn.Sequential(nn.Linear(6, 4, bias=False), Logarithm(), nn.Linear(4, 3))


def batch(step, bad_step, sample):
    x = torch.randn(8, 6)
    if step == bad_step:
        x[sample] = 0.0
    return x


def train(log, bad_step, leaves, steps=6):
    """Train; ``leaves`` says whether to stop after the backward pass."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(batch(step, bad_step, 5)).square().mean()
        loss.backward()
        log(loss)
        if leaves(loss, model):
            return
        optimizer.step()


@program("NUM101", "forward", "log", 3, module="1", sample=5)
def left_because_of_the_loss(log):
    train(log, 3, lambda loss, _: not loss.isfinite())


@program("NUM101", "forward", "log", 0, module="1", sample=5)
def left_in_the_first_step(log):
    train(log, 0, lambda loss, _: not loss.isfinite())


@program("NUM101", "forward", "log", LATE, module="1", sample=5)
def left_late(log):
    train(log, LATE, lambda loss, _: not loss.isfinite(), steps=LATE + 2)


@program("NUM101", "forward", "log", 2, module="1", sample=5)
def ended_by_an_exception(log):
    def leaves(loss, _):
        if not loss.isfinite():
            raise FloatingPointError

    try:
        train(log, 2, leaves)
    except FloatingPointError:
        log(torch.zeros(()))


@program("NUM102", "backward", "SqrtBackward0", 2, sample=1)
def left_because_of_the_gradients(log):
    model = nn.Linear(6, 3, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(5):
        optimizer.zero_grad()
        loss = model(batch(step, 2, 1)).square().sum(1).sqrt().mean()  # born
        loss.backward()
        log(loss)
        if not model.weight.grad.isfinite().all():
            break
        optimizer.step()


@program("NUM103", "loss", "log", 3, sample=6)
def before_the_second_of_two_optimizers(log):
    maker, critic = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 1), nn.Sigmoid())
    optimizers = [torch.optim.SGD(part.parameters(), 1e-3) for part in (critic, maker)]
    for step in range(6):
        optimizers[0].zero_grad()
        loss = critic(maker(torch.randn(8, 4)).detach()).mean()
        loss.backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        keep = torch.ones(8, 1)
        keep[6] = float(step != 3)
        loss = -(critic(maker(torch.randn(8, 4))) * keep).log().mean()  # born
        loss.backward()
        log(loss)
        if not loss.isfinite():
            break
        optimizers[1].step()


@program("NUM103", "loss", "log", 3, sample=2)
def an_optimizer_that_never_steps(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(6):
        keep = torch.ones(8, 1)
        keep[2] = float(step != 3)
        model.zero_grad()
        loss = -(model(torch.randn(8, 6)).sigmoid() * keep).log().mean()  # born
        loss.backward()
        log(loss)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 1e-3 * parameter.grad
    log(optimizer.param_groups[0]["lr"])


@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_birth_is_named(loud_issues_of, run, expected):
    rule, phase, op, step, place = expected
    (issue,) = [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM")]
    where = issue.where
    assert (issue.rule, issue.phase, where.op, issue.step) == (rule, phase, op, step), issue.message
    assert {key: getattr(where, key) for key in place} == place, issue.message
    if lines_of(run):
        assert where.line in lines_of(run), issue.message


def left_although_all_is_well(log):
    train(log, -1, lambda loss, model: len(list(model)) > 9)
    model = net()
    torch.optim.SGD(model.parameters(), 1e-3)
    model(torch.randn(8, 6)).square().mean().backward()


def cleared_by_hand(log):
    """The program sees it and throws the gradients away."""

    def leaves(loss, model):
        model.zero_grad()
        return not loss.isfinite()

    train(log, 3, leaves)


def skipped_by_a_scaler(log):
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 1e-8)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_factor=2.0**40, growth_interval=4)
    for _ in range(8):  # the steps that follow a raise of the scale are skipped, the last one too
        optimizer.zero_grad()
        loss = model(torch.randn(8, 6)).square().mean() * 1e4
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        log(loss)
    optimizer.zero_grad()
    loss = model(torch.randn(8, 6)).square().mean()
    scaler.scale(loss * 1e30).backward()
    log(loss, math.isfinite(scaler.get_scale()))


def gradients_of_a_part_that_another_optimizer_holds(log):
    model, frozen = nn.Linear(6, 3), nn.Linear(6, 3)
    optimizers = [torch.optim.SGD(part.parameters(), 1e-3) for part in (model, frozen)]
    for _ in range(4):
        optimizers[0].zero_grad()
        loss = (model(torch.randn(8, 6)) + frozen(torch.randn(8, 6))).square().mean()
        loss.backward()
        optimizers[0].step()
        frozen.weight.grad[0, 0] = math.inf
        log(loss)


@pytest.mark.parametrize(
    "run",
    [
        left_although_all_is_well,
        cleared_by_hand,
        skipped_by_a_scaler,
        gradients_of_a_part_that_another_optimizer_holds,
    ],
)
def test_what_was_dealt_with_is_no_alarm(loud_issues_of, run):
    assert not [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM")]
