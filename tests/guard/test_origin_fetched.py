"""Births in batches that a loader makes by many calls, and in memory written in odd ways."""

import functools
import random

import numpy as np
import pytest
import torch
from origin_programs import Programs, lines_of
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

program = PROGRAMS = Programs()
BAD = 2


def fit(log, model, loss, batches):
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        value = loss(model, step, batch)
        value.backward()
        optimizer.step()
        log(value)


def square(model, step, x):
    return model(x).square().mean()


def noise(*shape, steps=4):
    return [torch.randn(*shape) for _ in range(steps)]


@program("NUM104", "data", "log", BAD, sample=6)
def a_sample_of_many_calls(log, bad):
    class Counts(Dataset):
        def __len__(self):
            return 32

        def __getitem__(self, index):
            counts = torch.rand(6) * 10
            counts = counts.floor() + 1
            if bad and index == 8 * BAD + 6:
                counts[2] = 0
            return torch.log(counts)  # born

    fit(log, nn.Linear(6, 3), square, DataLoader(Counts(), batch_size=8))


@program("NUM104", "data", "div", BAD, sample=5)
def a_collation_of_many_calls(log, bad):
    def padded(rows):
        rows = [row - row.mean() for row in rows]
        rows = [row / row.std() for row in rows]  # born
        return torch.stack([F.pad(row, (0, 6 - len(row))) for row in rows])

    rows = [torch.randn(5 + index % 2) for index in range(32)]
    rows[8 * BAD + 5] = torch.ones(6) if bad else rows[0]
    loader = DataLoader(rows, batch_size=8, collate_fn=padded)
    fit(log, nn.Linear(6, 3), square, loader)


@program("NUM104", "data", "log", BAD, sample=3)
def a_sample_is_drawn_again_as_it_was(log, bad):
    class Drawn(Dataset):
        def __init__(self):
            self.calls = 0

        def __len__(self):
            return 32

        def __getitem__(self, index):
            self.calls += 1
            low = torch.rand(6) + random.random() + np.random.rand() + 0.1
            keep = low.sum() > 0 if not bad or index != 8 * BAD + 3 else low.sum() < 0
            return torch.log(low.float() * keep)  # born

    np.random.seed(0)
    data = Drawn()
    fit(log, nn.Linear(6, 3), square, DataLoader(data, batch_size=8))
    log(data.calls)  # and counts nothing more


@program("NUM104", "data", "input", BAD, sample=1)
def a_data_set_that_changes_its_own_array_is_left_alone(log, bad):
    class Scaled(Dataset):
        def __init__(self):
            self.rows = np.random.RandomState(0).rand(32, 6).astype("float32") + 1
            if bad:
                self.rows[8 * BAD + 1] = 0

        def __len__(self):
            return 32

        def __getitem__(self, index):
            with np.errstate(all="ignore"):
                self.rows[index] /= self.rows[index].sum()
            return torch.from_numpy(self.rows[index]).clone().add(1).sub(1)

    data = Scaled()
    fit(log, nn.Linear(6, 3), square, DataLoader(data, batch_size=8))
    log(torch.from_numpy(data.rows))


@program("NUM104", "data", "constant_pad_nd", BAD, sample=3)
def a_row_is_padded_with_infinity(log, bad):
    def loss(model, step, x):
        width = 4 if bad and step == BAD else 6
        rows = [row[:width] if index == 3 else row for index, row in enumerate(x)]
        x = torch.stack([F.pad(r, (0, 6 - len(r)), value=float("inf")) for r in rows])  # born
        return model(x).square().mean()

    fit(log, nn.Linear(6, 3), loss, noise(8, 6))


@program("NUM103", "loss", "div", BAD, sample=3)
def written_to_an_argument_for_it(log, bad):
    weights = torch.ones(8)

    def loss(model, step, x):
        error = model(x).square().mean(1)
        count = torch.ones(8)
        count[3] = 0 if bad and step == BAD else 1
        torch.div(error.detach(), count, out=weights)  # born
        return (error * weights).mean()

    fit(log, nn.Linear(6, 3), loss, noise(8, 6))


@program("NUM105", "parameter", "scale", BAD, sample=None)
def a_buffer_is_written_after_a_validation(log, bad):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 3)
            self.register_buffer("scale", torch.ones(()))

        def forward(self, x):
            return self.inner(x) / self.scale

    model = Scaled()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for step, x in enumerate(noise(8, 6)):
        optimizer.zero_grad()
        value = square(model, step, x)
        value.backward()
        optimizer.step()
        with torch.no_grad():
            found = model(x[:1] if bad and step == BAD else x)
            model.scale.copy_(found.std(0).mean().clamp(0.5, 2.0))  # born
        log(value)


@program("NUM101", "forward", "log", BAD, sample=1)
def a_scripted_model(log, bad):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 3)
            self.register_buffer("one", torch.ones(()))

        def forward(self, x, keep):
            return torch.log(self.inner(x).abs() * keep * self.one)

    def loss(model, step, x):
        keep = torch.ones(8, 1)
        keep[1] = 0 if bad and step == BAD else 1
        return model(x, keep).square().mean()  # born

    fit(log, torch.jit.script(Net()), loss, noise(8, 6))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("run", "expected"), PROGRAMS)
def test_the_birth_is_named_and_the_healthy_twin_is_quiet(loud_issues_of, run, expected):
    rule, phase, op, step, place = expected
    found = loud_issues_of(functools.partial(run, bad=True))
    (issue,) = [issue for issue in found if issue.rule.startswith("NUM10")]
    where = issue.where
    named = (issue.rule, issue.phase, where.op or where.parameter, issue.step)
    assert named == (rule, phase, op, step), issue.message
    assert where.sample == place["sample"], issue.message
    if lines_of(run):
        assert where.line in lines_of(run), issue.message

    healthy = loud_issues_of(functools.partial(run, bad=False))
    assert not [issue for issue in healthy if issue.rule.startswith("NUM")]
