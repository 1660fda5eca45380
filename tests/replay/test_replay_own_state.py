"""Programs that hold state beside what a checkpoint stores: exact, or told, or another program."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla_replay


class Recurrent:
    """Truncated backpropagation through time: the hidden state goes on from batch to batch."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.ModuleDict({"cell": nn.GRU(3, 5, batch_first=True), "out": nn.Linear(5, 3)})
        self.optimizer = torch.optim.Adam(self.model.parameters(), 0.01)
        self.series = torch.randn(2, 200, 3)
        self.hidden = torch.zeros(1, 2, 5)

    def window(self, number):
        return self.series[:, 4 * number : 4 * number + 4]

    def step(self, number):
        x = self.window(number)
        out, hidden = self.model["cell"](x, self.hidden)
        self.hidden = hidden.detach()
        return self.update(F.mse_loss(self.model["out"](out), x))

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Counted(Recurrent):
    """Counts by itself, and holds nothing else: its input is noisier from the eighth step on."""

    limit = 8
    noise = 0.1

    def __init__(self):
        super().__init__()
        self.taken = 0

    def step(self, number=None):
        x = self.window(self.taken)
        if self.taken >= self.limit:
            x = x + self.noise * torch.randn_like(x)
        self.taken += 1
        out, _ = self.model["cell"](x)
        return self.update(F.mse_loss(self.model["out"](out), x))


class Drawing(Recurrent):
    """Draws from a generator of its own."""

    def __init__(self):
        super().__init__()
        self.dice = random.Random(1)

    def step(self, number):
        x = self.window(number) * self.dice.random()
        return self.update(F.mse_loss(self.model["out"](self.model["cell"](x)[0]), x))


class Streaming(Recurrent):
    """Takes its windows from a generator function that goes on for ever."""

    def __init__(self):
        super().__init__()
        self.windows = self.stream()

    def stream(self):
        at = 0
        while True:
            yield self.series[:, at : at + 4]
            at += 4

    def step(self, number=None):
        x = next(self.windows)
        return self.update(F.mse_loss(self.model["out"](self.model["cell"](x)[0]), x))


class Logging(Recurrent):
    """Keeps a count and its losses, and neither decides a step."""

    factor = 1.0

    def __init__(self):
        super().__init__()
        self.seen, self.losses = 0, []

    def step(self, number):
        x = self.factor * self.window(number)
        loss = self.update(F.mse_loss(self.model["out"](self.model["cell"](x)[0]), x))
        self.seen += 1
        self.losses.append(float(loss))
        return loss


@pytest.fixture
def resumed(tmp_path):
    """Record a run that is ended and gone on with by the same program: a second segment."""

    def run(kind, first=7, then=6, every=4):
        program = kind()
        options = {"root": tmp_path, "budget": None, "checkpoint_every": every}
        number = 0
        folder = None
        for count in (first, then):
            with nabla_replay.capture(
                program.model, program.optimizer, resume=folder, **options
            ) as rec:
                for _ in range(count):
                    loss = program.step(number)
                    rec.record_step(step=number, loss=loss)
                    number += 1
            folder = rec.run_path
        return folder

    return run


@pytest.mark.parametrize(
    ("kind", "name"), [(Recurrent, "hidden"), (Drawing, "dice"), (Streaming, "windows")]
)
def test_a_resume_that_depends_on_state_of_its_own_is_not_blamed(resumed, kind, name):
    run = resumed(kind)
    result = nabla_replay.replay(run, build=kind)
    assert result.status == "UNVERIFIED", result.format()
    assert f"({name})" in result.cautions[0] or f"({name}, " in result.cautions[0]
    assert {one.status for one in result.steps} == {"MATCH"}


@pytest.mark.parametrize("start", [None, 9, 11])
def test_a_counter_of_its_own_is_put_to_where_it_was(resumed, start):
    run = resumed(Counted)
    result = nabla_replay.replay(run, build=Counted, from_step=start)
    assert result.status == "MATCH", result.format()
    assert "taken" in result.issues[-1].message


class Harder(Recurrent):
    """Its loop sets a number that decides the input."""

    share = 0.5

    def window(self, number):
        return super().window(number) * self.share


def test_a_number_that_a_resume_sets_is_no_difference_of_the_program(resumed):
    def build():
        program = Harder()
        program.step = Logging.step.__get__(program)
        program.seen, program.losses, program.factor = 0, [], 1.0
        return program

    def gone_on():
        program = build()
        taken = program.step

        def step(number):
            program.share = 0.5 if number < 7 else 0.75
            return taken(number)

        program.step = step
        return program

    result = nabla_replay.replay(resumed(gone_on), build=build)
    assert result.status == "UNVERIFIED", result.format()
    assert "before the run was gone on with" in result.cautions[0]
    assert len(result.steps) == 7


def test_a_counter_excuses_no_other_program(resumed):
    class Noisier(Counted):
        noise = 0.2

    result = nabla_replay.replay(resumed(Counted), build=Noisier, from_step=0, to_step=8)
    assert result.status != "MATCH", result.format()


def test_a_count_that_decides_nothing_excuses_nothing(resumed):
    class Larger(Logging):
        factor = 1.001

    run = resumed(Logging)
    assert nabla_replay.replay(run, build=Logging).status == "MATCH"
    result = nabla_replay.replay(run, build=Larger, from_step=8)
    assert result.status == "DIVERGENCE", result.format()
    assert result.divergence.step == 7  # the first one behind the checkpoint


def test_what_is_executed_from_its_very_beginning_is_judged(resumed):
    class Wider(Recurrent):
        def window(self, number):
            return super().window(number) * (1.001 if number == 5 else 1.0)

    result = nabla_replay.replay(resumed(Recurrent), build=Wider, from_step=4, to_step=6)
    assert result.status == "DIVERGENCE", result.format()
