"""AUD602: a checkpoint that was loaded into a module which nobody uses."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 16), nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.body(x).relu())


def saved():
    """A file with the weights of a model, that stands at its beginning."""
    file = io.BytesIO()
    torch.save(Net().state_dict(), file)
    file.seek(0)
    return file


def fit(model, steps=6):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        x = torch.randn(8, 6)
        optimizer.zero_grad()
        F.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
        optimizer.step()


def restored(file):
    model = Net()
    model.load_state_dict(torch.load(file))
    return model


def into_a_local_name(file):
    def load(model):
        model = Net()  # the fault: the model of the caller is another one
        model.load_state_dict(torch.load(file))

    model = Net()
    load(model)
    fit(model)


class Trainer:
    """Makes its model again when the training begins."""

    def __init__(self, file):
        self.model = restored(file)

    def fit(self):
        self.model = Net()
        fit(self.model)


def rebuilt(file):
    Trainer(file).fit()


def kept(file):
    fit(restored(file))


def copied(file):
    fit(copy.deepcopy(restored(file)))


def of_a_teacher(file):
    teacher, student = restored(file), Net()
    with torch.no_grad():
        teacher(torch.randn(8, 6))
    del teacher
    fit(student)


def taken_over(file):
    model = Net()
    model.body = restored(file).body
    fit(model)


def handed_on(file):
    state = restored(file).state_dict()
    model = Net()
    model.load_state_dict(state)
    fit(model)


def alive(file):
    other = restored(file)
    fit(Net())
    assert other is not None


@pytest.mark.parametrize("program", [into_a_local_name, rebuilt])
def test_loaded_and_thrown_away(audited, program):
    file = saved()
    issues = audited(lambda: program(file))

    assert [(issue.rule, issue.severity.label) for issue in issues] == [("AUD602", "medium")]
    assert "load_state_dict filled the 4 parameters of a Net" in issues[0].message


@pytest.mark.parametrize("program", [kept, copied, of_a_teacher, taken_over, handed_on, alive])
def test_what_was_loaded_is_used_or_may_be(audited, program):
    file = saved()
    assert audited(lambda: program(file)) == []
