"""Loops that take batches ahead of their steps, or set rates and evaluate between them."""

import random
from itertools import chain, islice

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset

import nabla_replay
from nabla_core.errors import UsageError
from nabla_replay.capturing.generators import generator_state
from nabla_replay.capturing.rates import with_earlier_rates


class Noisy(Dataset):
    """Its samples follow the generators as they are when a batch is taken."""

    def __init__(self):
        self.rows = torch.randn(30, 4)

    def __len__(self):
        return 30

    def __getitem__(self, index):
        return self.rows[index] + 0.1 * torch.randn(4) + 0.1 * random.random(), index % 2


class Program:
    """A classifier of two groups of parameters over a shuffled loader of eight batches."""

    def __init__(self, dropout=0.2):
        torch.manual_seed(0)
        random.seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(dropout), nn.Linear(8, 2))
        groups = [{"params": self.model[0].parameters()}]
        groups += [{"params": self.model[2].parameters(), "lr": 0.005}]
        self.optimizer = torch.optim.AdamW(groups, 0.05)
        self.scheduler = StepLR(self.optimizer, 3, 0.7)
        self.loader = DataLoader(Noisy(), batch_size=4, shuffle=True)

    def step(self, batch):
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        self.model.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def wetter():
    return Program(dropout=0.3)


@pytest.fixture
def recorded(tmp_path):
    def run(loop, hand=False, before=None, after=None, late=None):
        program = Program()
        nothing = lambda program, number: None  # noqa: E731
        parts = {"scheduler": program.scheduler, "loader": program.loader}
        options = {"root": tmp_path, "budget": None, "checkpoint_every": 5, **parts}
        with nabla_replay.capture(program.model, program.optimizer, **options) as rec:
            for number, batch in enumerate(loop(program.loader)):
                (before or nothing)(program, number)
                loss = program.step(batch)
                (after or nothing)(program, number)
                if hand:
                    rec.record_step(loss=loss)
                (late or nothing)(program, number)
        return rec.run_path

    return run


def ahead(loader, depth=1):
    """Keep some batches waiting, as a prefetcher does."""
    batches = iter(loader)
    waiting = list(islice(batches, depth))
    while waiting:
        batch = waiting.pop(0)
        waiting += islice(batches, 1)
        yield batch


def chunks(loader):
    batches = iter(loader)
    while chunk := list(islice(batches, 3)):
        yield from chunk


def endless(loader):
    while True:
        yield from loader


def epochs(passes):
    return lambda loader: chain.from_iterable(passes(loader) for _ in range(2))


LOOPS = {
    "one ahead": epochs(ahead),
    "three ahead, and left early": epochs(lambda loader: islice(ahead(loader, 3), 4)),
    "over the end of an epoch": lambda loader: islice(ahead(endless(loader), 2), 13),
    "in chunks over the end of an epoch": lambda loader: islice(chunks(endless(loader)), 13),
    "every second one": epochs(lambda loader: islice(loader, 0, None, 2)),
}


@pytest.mark.parametrize("hand", [False, True], ids=["seen", "by hand"])
@pytest.mark.parametrize("name", LOOPS)
def test_batches_that_were_taken_ahead_of_their_steps_are_used_alike(recorded, name, hand):
    run = recorded(LOOPS[name], hand)
    for start in (None, 6):
        result = nabla_replay.replay(run, build=Program, from_step=start)
        assert result.status == "MATCH", result.format()
    assert nabla_replay.replay(run, build=wetter).status != "MATCH"


def test_an_order_that_is_not_found_is_told(recorded):
    def shuffled(loader):
        batches = list(loader)
        return [batches[index] for index in (3, 0, 6, 1, 7, 2, 5, 4)]

    result = nabla_replay.replay(recorded(shuffled), build=Program)
    assert result.status == "UNVERIFIED", result.format()
    assert "takes them ahead" in result.cautions[0]


def same(program, number):
    for group in program.optimizer.param_groups:
        group["lr"] = 0.05 * np.cos(number / 30)  # a number of NumPy


def one(program, number):
    if number in (4, 9):
        program.optimizer.param_groups[1]["lr"] *= 0.5


def heavier(program, number):
    for group in program.optimizer.param_groups:
        group["betas"] = 0.8 + number / 1000, 0.99
    program.optimizer.param_groups[1]["weight_decay"] = 1e-4 * (number // 4)


def follow(program, number):
    program.scheduler.step()


@pytest.mark.parametrize("hand", [False, True], ids=["seen", "by hand"])
@pytest.mark.parametrize("change", [same, one, heavier, follow])
@pytest.mark.parametrize("place", ["before", "after", "late"])
def test_rates_that_the_loop_sets_are_set_again_and_told(recorded, place, change, hand):
    if (change is follow) == (place == "before"):
        return
    run = recorded(epochs(lambda loader: loader), hand, **{place: change})
    for start in (None, 7):
        result = nabla_replay.replay(run, build=Program, from_step=start)
        assert result.status == "MATCH", result.format()
        assert "the loop around it" in result.issues[0].message
    assert nabla_replay.replay(run, build=wetter).divergence.component == "loss"


def evaluate(program, number):
    if number == 6:
        with torch.no_grad():
            program.model(torch.ones(2, 4))


def load(program, number):
    if number == 6:
        program.model.load_state_dict({k: 0.9 * v for k, v in program.model.state_dict().items()})


@pytest.mark.parametrize(("change", "word"), [(evaluate, "evaluation"), (load, "load_state_dict")])
def test_what_happens_between_steps_that_are_recorded_by_hand_is_recognised(recorded, change, word):
    run = recorded(epochs(lambda loader: loader), True, late=change)
    result = nabla_replay.replay(run, build=Program)
    assert {one.status for one in result.steps} == {"MATCH"}
    if change is evaluate:  # what it drew is found out, and drawn again
        assert result.status == "MATCH", result.format()
        assert "drew random numbers (torch)" in result.issues[0].message
        return
    assert result.status == "UNVERIFIED", result.format()
    assert word in result.cautions[0]


def test_rates_are_kept_until_new_ones_are_recorded():
    before = {"lr": 0.1, "lr.1": 0.2, "accuracy": 1.0}
    assert with_earlier_rates({"x": 1.0}, before) == {"lr": 0.1, "lr.1": 0.2, "x": 1.0}
    assert with_earlier_rates({"lr": 0.3}, before) == {"lr": 0.3}
    settled = {"lr": 0.1, "group.0.momentum": 0.8, "group.1.momentum": 0.9}
    assert with_earlier_rates({"lr": 0.3, "group.1.momentum": 0.7}, settled) == {
        "lr": 0.3,
        "group.0.momentum": 0.8,
        "group.1.momentum": 0.7,
    }


def test_generators_are_read_in_place_as_they_say_they_are():
    draws = random.Random(3)
    kinds = (np.random.randn, random.random, np.random.rand, lambda: random.gauss(0, 1))
    for _ in range(40):
        draws.choice(kinds)()
        state, (version, words, gauss) = generator_state(), random.getstate()
        assert tuple(state["python"]["words"].tolist()) == words
        assert (state["python"]["version"], state["python"]["gauss"]) == (version, gauss)
        expected = np.random.get_state(legacy=False)
        assert state["numpy"]["state"]["key"].tolist() == expected["state"]["key"].tolist()
        assert state["numpy"]["state"]["pos"] == expected["state"]["pos"]
        assert state["numpy"]["has_gauss"] == expected["has_gauss"]
        assert state["numpy"]["gauss"] == expected["gauss"]


def test_a_single_step_of_such_a_loop_is_not_explained_with_another_batch(recorded):
    with pytest.raises(UsageError, match="batches ahead"):
        nabla_replay.explain_step(recorded(ahead), 6, build=Program)
    report = nabla_replay.explain_step(recorded(iter), 6, build=Program)
    assert report.run.command.endswith("--explain-step 6")
