"""The public ``guard``: arguments, scope and report."""

import pytest
import torch
from torch import nn

from nabla_core.errors import UsageError
from nabla_guard import guard


def test_it_says_which_modes_exist():
    with pytest.raises(UsageError, match="light, standard, deep"):
        guard(mode="fast")


@pytest.mark.parametrize("argument", [{"model": 3}, {"optimizer": 3}, {"optimizer": [3]}])
def test_it_says_what_it_needs(argument):
    with pytest.raises((UsageError, TypeError)):
        guard(**argument)


@pytest.mark.parametrize("mode", ["standard", "deep"])
def test_deeper_modes_say_that_they_measure_no_more_than_light(loop, mode):
    with guard(mode=mode) as monitor:
        loop.run(2)
    text = monitor.report().format()
    assert mode in text
    assert "light" in text


def test_a_model_without_parameters_is_no_error():
    with guard(nn.Flatten()) as monitor:
        nn.Flatten()(torch.ones(2, 2, 2))
    assert monitor.report().passed
    assert monitor.steps == 0


def test_only_the_given_optimizer_is_judged(make_loop):
    mine, other = make_loop(), make_loop()
    with guard(mine.model, optimizer=mine.optimizer) as monitor:
        other.run(5)
        assert monitor.steps == 0
        mine.run(2)
    assert monitor.steps == 2


def test_only_optimizers_of_the_given_model_are_judged(make_loop):
    mine, other = make_loop(), make_loop()
    with guard(mine.model) as monitor:
        other.run(5)
        mine.run(2)
    assert monitor.steps == 2


def test_the_signals_of_a_step_are_those_of_the_loop(loop):
    records = []
    with guard() as monitor:
        monitor.session.step = records.append
        losses = loop.run(3)
    grad_norm = torch.stack([p.grad.norm() for p in loop.model.parameters()]).norm()
    assert [record.signals["loss"] for record in records] == pytest.approx(
        [float(loss) for loss in losses]
    )
    assert records[-1].signals["grad_norm"] == pytest.approx(float(grad_norm), rel=1e-5)
    assert records[-1].signals["lr"] == 1e-2
    assert [record.step for record in records] == [0, 1, 2]


def test_the_loss_is_the_one_before_loss_scaling(make_loop):
    loop = make_loop()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    records, losses = [], []
    with guard() as monitor:
        monitor.session.step = records.append
        for x, y in loop.batches(3):
            loop.optimizer.zero_grad()
            loss = loop.loss(x, y)
            scaler.scale(loss).backward()
            scaler.step(loop.optimizer)
            scaler.update()
            losses.append(float(loss.detach()))
    assert [record.signals["loss"] for record in records] == pytest.approx(losses)


def test_the_loss_of_accumulated_micro_batches_is_their_mean(loop):
    records = []
    with guard() as monitor:
        monitor.session.step = records.append
        loop.optimizer.zero_grad()
        losses = [loop.loss(x, y) for x, y in loop.batches(4)]
        for loss in losses:
            loss.backward()
        loop.optimizer.step()
    mean = sum(float(loss.detach()) for loss in losses) / 4
    assert records[0].signals["loss"] == pytest.approx(mean)
