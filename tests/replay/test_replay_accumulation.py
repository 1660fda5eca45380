"""Gradients of several batches, also where the batches of one step lie in two epochs."""

import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import nabla_replay
from nabla_replay.capturing.carried import CarriedGradients
from nabla_replay.capturing.parts import Parts


class Accumulating:
    """Seven batches per epoch, and a step after every third one."""

    every = 3

    def __init__(self, noise=0.0):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        rows = TensorDataset(torch.randn(28, 4), torch.arange(28) % 2)
        self.loader = DataLoader(rows, batch_size=4, shuffle=True)
        self.noise = noise
        self.seen = 0

    def step(self, batch):
        loss = F.cross_entropy(self.model(batch[0] + self.noise), batch[1]) / self.every
        loss.backward()
        self.seen += 1
        if self.seen % self.every == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()


@pytest.fixture
def recorded(tmp_path):
    """Capture a program, whose steps are seen by themselves or told; return the run."""

    def run(program, epochs=4, most=100, told=False):
        parts = {"loader": program.loader, "budget": None, "checkpoint_every": 100}
        with nabla_replay.capture(program.model, program.optimizer, root=tmp_path, **parts) as rec:
            for _ in range(epochs):
                for index, batch in enumerate(program.loader):
                    if index >= most:
                        break  # this batch is taken, and not used
                    loss = program.step(batch)
                    if told and program.seen % program.every == 0:
                        rec.record_step(loss=loss)
        return rec.run_path

    return run


@pytest.mark.parametrize("told", [False, True])
def test_a_step_may_begin_in_one_epoch_and_end_in_the_next(recorded, told):
    result = nabla_replay.replay(recorded(Accumulating(), told=told), build=Accumulating)
    assert result.status == "MATCH", result.format()
    assert len(result.steps) == 9


def test_what_differs_in_such_a_step_is_still_found(recorded):
    result = nabla_replay.replay(recorded(Accumulating()), build=lambda: Accumulating(1e-6))
    assert result.status == "DIVERGENCE"
    assert result.divergence.step == 0


@pytest.mark.parametrize("told", [False, True])
def test_a_batch_that_was_taken_and_not_used_is_not_executed(recorded, told):
    result = nabla_replay.replay(recorded(Accumulating(), most=3, told=told), build=Accumulating)
    assert result.status == "MATCH", result.format()
    assert len(result.steps) == 4


def test_no_gradient_is_kept_alive():
    program = Accumulating()
    carried = CarriedGradients(Parts(model=program.model, optimizers=(program.optimizer,)))
    program.step(next(iter(program.loader)))
    carried.note()
    assert not carried.changed()
    gradient = weakref.ref(program.model[0].weight.grad)
    program.optimizer.zero_grad()
    assert gradient() is None
    assert not carried.changed()
    program.step(next(iter(program.loader)))
    assert carried.changed()
