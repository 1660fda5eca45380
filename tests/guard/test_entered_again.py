"""``for epoch in …: with monitor: train()``: what is known survives, and is looked at again."""

import contextlib
import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_core.severity import Severity
from nabla_guard import guard

MOST_FIRST_CALLS = 680
"""Of Python functions of ours in the first step of a block, with every package installed."""
MOST_MORE_CALLS = 40
"""By which the second step may exceed a calm one: batches that were put off, and what is begun."""


class Program:
    """A healthy classifier that is trained in blocks, and something done to it between them."""

    def __init__(self):
        torch.manual_seed(0)
        layers = (nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.saved = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))
        self.losses = []

    def step(self, wrong=False):
        x = torch.randn(8, 6)
        self.optimizer.zero_grad()
        output = self.model(x)
        if wrong:
            output = output / (output - output)
        loss = F.cross_entropy(output, x[:, :3].argmax(-1))
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def block(self, steps=10, wrong_at=None):
        self.model.train()
        for step in range(steps):
            self.step(wrong=step == wrong_at)


def nothing(program):
    """The next epoch begins."""


def validated(program):
    program.model.eval()
    with torch.no_grad():
        for _ in range(3):
            program.model(torch.randn(8, 6))


def restored(program):
    program.model.load_state_dict(program.saved[0])
    program.optimizer.load_state_dict(copy.deepcopy(program.saved[1]))


def slower(program):
    program.optimizer.param_groups[0]["lr"] *= 0.1


def replaced_head(program):
    program.model[3] = nn.Linear(8, 3)
    program.optimizer = torch.optim.Adam(program.model.parameters(), 1e-2)


def grown(program):
    program.model.append(nn.Linear(3, 3))
    program.optimizer.add_param_group({"params": list(program.model[-1].parameters())})


def edited(program):
    with torch.no_grad():
        program.model[0].weight.mul_(0.5)


def trained_unseen(program):
    program.block(5)


def another_optimizer(program):
    program.optimizer = torch.optim.SGD(program.model.parameters(), 1e-2)


BETWEEN = [
    nothing,
    validated,
    restored,
    slower,
    replaced_head,
    grown,
    edited,
    trained_unseen,
    another_optimizer,
]


def serious(issues):
    return [issue for issue in issues if issue.severity > Severity.INFO]


@pytest.mark.parametrize("mode", ["light", "standard"])
@pytest.mark.parametrize("between", BETWEEN)
def test_changes_between_blocks_are_no_faults_and_faults_after_them_are_found(between, mode):
    program = Program()
    monitor = guard(program.model, mode=mode)
    for _ in range(3):
        with monitor:
            program.block()
        between(program)
    assert serious(monitor.issues) == []

    with monitor:
        program.block(3, wrong_at=1)
    found = serious(monitor.issues)[0]
    assert (found.rule, found.step, found.where.op) == ("NUM103", monitor.steps - 2, "div")
    assert found.where.file.endswith("test_entered_again.py")
    assert not monitor.report().problems


def test_a_block_changes_no_loss():
    def losses(monitored):
        program = Program()
        monitor = guard(program.model, optimizer=program.optimizer) if monitored else None
        for _ in range(3):
            with monitor or contextlib.nullcontext():
                program.block()
            validated(program)
        return program.losses

    assert losses(True) == losses(False)


def test_a_block_begins_with_one_full_step_and_goes_on_calmly(calls_of_ours):
    program = Program()
    monitor = guard(program.model, optimizer=program.optimizer, mode="light")
    for _ in range(12):
        with monitor:
            program.block()
    program.model.train()
    with monitor:
        calls = [calls_of_ours(program.step) for _ in range(6)]
        assert monitor.session.source.calm.on
    assert calls[0] <= MOST_FIRST_CALLS
    assert calls[1] <= calls[-1] + MOST_MORE_CALLS
