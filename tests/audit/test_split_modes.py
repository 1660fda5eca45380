"""AUD301 and AUD302 where the flag of a module is not that of its parts."""

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.body(x))


class Deaf(Net):
    def train(self, mode=True):
        self.training = mode
        return self


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 3))

    def forward(self, x):
        return self.inner(x)


def training(model, switch_on, switch_off=nn.Module.eval):
    def program():
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(2):
            switch_on(model)
            for _ in range(6):
                x = torch.randn(16, 6)
                optimizer.zero_grad()
                F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
                optimizer.step()
            switch_off(model)
            with torch.no_grad():
                for _ in range(3):
                    model(torch.randn(16, 6))
        switch_on(model)

    return program


def set_flag(model):
    model.training = True


def freeze_inner(model):
    model.train()
    model.inner.eval()


def found(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


def test_a_flag_that_is_assigned_switches_nothing_on(audited):
    (issue,) = audited(training(Net(), set_flag))
    assert (issue.rule, issue.severity.label) == ("AUD301", "medium")
    assert "those of the 5 modules below it" in issue.message


def test_a_train_that_reaches_nothing_leaves_dropout_on(audited):
    assert found(audited(training(Deaf(), nn.Module.train))) == [("AUD302", "medium")]


def test_train_and_eval_are_heard(audited):
    assert audited(training(Net(), nn.Module.train)) == []


def test_a_wrapper_may_freeze_its_only_part(audited):
    assert audited(training(Wrapper(), freeze_inner)) == []
