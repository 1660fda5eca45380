"""A step that is executed again leaves the user's own lists, counters and generators alone."""

import math
import random
from collections import deque

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_guard.origin.reach import ReadOnce, functions_of, reach_kept

PROGRAMS = []
CALLS = []
TOTALS = {"calls": 0}


def program(function):
    """Note a program whose fourth batch is infinite."""
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


def fit(log, model, after=None):
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(5):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        out = model(x * (math.inf if step == 3 else 1.0))
        if after is not None:
            after(out)
        optimizer.zero_grad()
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        log(loss)


class Meter:
    def __init__(self):
        self.values = []
        self.total = 0.0

    def update(self, value):
        self.values.append(value)
        self.total += value


@program
def hooks_of_modules_that_collect(log):
    CALLS.clear()
    meter, norms = Meter(), []
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def count(module, args, output):
        CALLS.append(1)
        meter.update(1.0)

    model[0].register_forward_hook(count)
    model[2].register_full_backward_hook(lambda module, given, made: norms.append(1))
    fit(log, model)
    log(len(CALLS), meter.total, len(meter.values), len(norms))


@program
def a_hook_of_a_tensor_that_collects(log):
    norms = []
    fit(log, nn.Linear(6, 3), lambda out: out.register_hook(lambda g: norms.append(float(g.sum()))))
    log(*norms)


@program
def counters_of_every_kind(log):
    TOTALS["calls"] = 0

    class Counting(nn.Module):
        made = 0

        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)
            self.calls = 0
            self.history = []

        def forward(self, x):
            Counting.made += 1
            TOTALS["calls"] += 1
            self.calls += 1
            self.history.append(self.calls)
            return self.net(x)

    model = Counting()
    fit(log, model)
    log(Counting.made, TOTALS["calls"], model.calls, len(model.history))


@program
def random_generators_of_ones_own(log):
    numbers, own = random.Random(3), torch.Generator().manual_seed(3)

    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)
            self.drop = nn.Dropout(0.3)

        def forward(self, x):
            noise = torch.randn(x.shape, generator=own)
            return self.net(self.drop(x) + 0.1 * noise) * (1 + numbers.random())

    fit(log, Noisy())
    log(torch.rand(3, generator=own), numbers.random())


@program
def an_iterator_in_the_model(log):
    class Scheduled(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(6, 3)
            self.offsets = iter(range(1000))

        def forward(self, x):
            return self.net(x) + next(self.offsets)

    model = Scheduled()
    fit(log, model)
    log(next(model.offsets))


@program
def lists_inside_of_containers(log):
    inside = {}
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    model.seen = {"outputs": [], "nested": [[]]}

    def collect(module, args, output):
        inside.setdefault("first", []).append(1)
        model.seen["outputs"].append(1)
        model.seen["nested"][0].append(1)

    model[0].register_forward_hook(collect)
    fit(log, model)
    log(*map(len, (inside["first"], model.seen["outputs"], model.seen["nested"][0])))


@pytest.mark.parametrize("run", PROGRAMS)
def test_what_the_program_reaches_is_put_back(loud_issues_of, run):
    (issue,) = [issue for issue in loud_issues_of(run) if issue.rule.startswith("NUM10")]
    assert (issue.rule, issue.step) == ("NUM104", 3)
    assert issue.related == ("NUM103", "NUM102")


def test_containers_cells_and_objects_are_put_back():
    seen, recent, meter, count = [1], deque([1], maxlen=4), Meter(), 0

    def forward():
        nonlocal count
        count += 1
        seen.append(2)
        recent.append(2)
        meter.update(3.0)
        meter.extra = True

    with reach_kept([forward]):
        forward()
        assert (count, seen, meter.values) == (1, [1, 2], [3.0])
    assert (count, seen, list(recent)) == (0, [1], [1])
    assert vars(meter) == {"values": [], "total": 0.0}


def test_a_generator_function_is_not_read():
    class Fed(nn.Module):
        def forward(self):
            return next(self.feed)

    model = Fed()
    model.feed = (number for number in range(3))
    with pytest.raises(ReadOnce), reach_kept(functions_of([model]), [model]):
        model()
    assert next(model.feed) == 0
