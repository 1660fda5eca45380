"""AUD205 and AUD208 to AUD211."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def rules(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


def train(model, optimizer, data, between=None):
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if between is not None:
            between()


# ---------------------------------------------------------------- AUD205
class Rebinding(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter = parameter - group["lr"] * parameter.grad


def test_an_optimizer_that_writes_nothing(audited, net, batches):
    def program():
        model = net()
        train(model, Rebinding(model.parameters()), batches(6))

    (issue,) = audited(program)
    assert (issue.rule, issue.severity.label) == ("AUD205", "high")
    assert issue.step <= 3
    assert "change nothing" in issue.message


def test_weights_that_are_put_back(audited, net, batches):
    def program():
        model = net()
        best = copy.deepcopy(model.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        train(model, optimizer, batches(6), lambda: model.load_state_dict(best))

    found = [issue for issue in audited(program) if issue.rule == "AUD205"]
    assert [issue.severity.label for issue in found] == ["high"]
    assert "puts the old values back" in found[0].message


def test_steps_below_the_resolution_are_silent(audited, net, batches):
    def program():
        model = net()
        train(model, torch.optim.SGD(model.parameters(), 1e-12), batches(6))

    assert rules(audited(program)) == []


# ---------------------------------------------------------------- AUD208
def test_weight_clipping_is_information(audited, net, batches):
    def program():
        model = net()

        def clip():
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.clamp_(-0.1, 0.1)

        train(model, torch.optim.SGD(model.parameters(), 0.1), batches(8), clip)

    assert rules(audited(program)) == [("AUD208", "info")]


@pytest.mark.parametrize(("touch", "found"), [(True, [("AUD208", "high")]), (False, [])])
def test_a_declared_frozen_parameter(audited, batches, monkeypatch, tmp_path, touch, found):
    (tmp_path / "nabla.toml").write_text('[audit]\nfrozen = ["0.*"]\n')
    monkeypatch.chdir(tmp_path)

    def program():
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        model[0].requires_grad_(False)

        def edit():
            if touch:
                model[0].weight.data.mul_(1.01)

        optimizer = torch.optim.SGD(model[2].parameters(), 0.1)
        train(model, optimizer, batches(6), edit)

    assert rules(audited(program)) == found


# ---------------------------------------------------------------- AUD209
class Words(nn.Module):
    def __init__(self, tie="object"):
        super().__init__()
        self.table = nn.Embedding(12, 8)
        self.out = nn.Linear(8, 12, bias=False)
        if tie == "object":
            self.out.weight = self.table.weight
        elif tie == "memory":
            self.out.weight.data = self.table.weight.data
        elif tie == "values":
            self.out.weight.data = self.table.weight.data.clone()

    def forward(self, ids):
        return self.out(self.table(ids).tanh())


def read(model, between=None, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(steps):
        ids = torch.randint(0, 12, (16,))
        optimizer.zero_grad()
        F.cross_entropy(model(ids), (ids + 1) % 12).backward()
        optimizer.step()
        if between is not None and step == 0:
            between(model)


def untie(model):
    model.out.weight = nn.Parameter(model.out.weight.detach().clone())


@pytest.mark.parametrize(
    ("tie", "between", "severity"),
    [("object", untie, "high"), ("memory", None, "medium"), ("values", None, "medium")],
)
def test_a_broken_tie(audited, tie, between, severity):
    found = [
        issue for issue in audited(lambda: read(Words(tie), between)) if issue.rule == "AUD209"
    ]
    assert [issue.severity.label for issue in found] == [severity]


def test_a_tie_that_the_config_declares(audited):
    class Configured(Words):
        def __init__(self):
            super().__init__("none")
            self.config = type("Config", (), {"tie_word_embeddings": True})()

        def get_input_embeddings(self):
            return self.table

        def get_output_embeddings(self):
            return self.out

    assert rules(audited(lambda: read(Configured()))) == [("AUD209", "high")]


@pytest.mark.parametrize(("tie", "found"), [("none", [("AUD209", "high")]), ("object", [])])
def test_a_config_without_accessors(audited, tie, found):
    class Configured(Words):
        def __init__(self):
            super().__init__(tie)
            self.config = {"tie_embeddings": True}

    assert rules(audited(lambda: read(Configured()))) == found


@pytest.mark.parametrize("tie", ["object", "none"])
def test_tied_and_never_tied_weights_are_silent(audited, tie):
    assert rules(audited(lambda: read(Words(tie)))) == []


# ---------------------------------------------------------------- AUD210
def normalised():
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))


@pytest.fixture
def averaged(audited, batches):
    """Follow a model by an average of its parameters, and of its buffers if asked."""

    def run(buffers, evaluations=1):
        def program():
            model = normalised()
            follower = copy.deepcopy(model).eval()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)

            @torch.no_grad()
            def follow():
                for mean, parameter in zip(follower.parameters(), model.parameters(), strict=True):
                    mean.lerp_(parameter, 0.1)
                if buffers:
                    for mine, other in zip(follower.buffers(), model.buffers(), strict=True):
                        mine.copy_(other)

            for _ in range(evaluations):
                train(model, optimizer, batches(5), follow)
                with torch.no_grad():
                    follower(batches(1)[0][0])

        return rules(audited(program))

    return run


@pytest.mark.parametrize(("buffers", "found"), [(False, [("AUD210", "high")]), (True, [])])
def test_buffers_of_an_averaged_copy(averaged, buffers, found):
    assert averaged(buffers, 2) == found


def test_an_average_that_is_never_updated(audited, net, batches):
    def program():
        model = net()
        average = torch.optim.swa_utils.AveragedModel(model)
        train(model, torch.optim.SGD(model.parameters(), 0.1), batches(6))
        average.eval()
        with torch.no_grad():
            average(batches(1)[0][0])

    assert rules(audited(program)) == [("AUD210", "high")]


def test_a_frozen_teacher_is_silent(audited, net, batches):
    def program():
        model = net()
        teacher = copy.deepcopy(model).eval()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x, _ in batches(6):
            with torch.no_grad():
                target = teacher(x)
            optimizer.zero_grad()
            F.mse_loss(model(x), target + 1).backward()
            optimizer.step()

    assert rules(audited(program)) == []


# ---------------------------------------------------------------- AUD211
@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
@pytest.mark.parametrize("how", ["one list", "edited groups"])
def test_a_parameter_held_twice(audited, net, batches, how):
    def program():
        model = net()
        if how == "one list":
            held = [*model.parameters(), model[0].weight]
            optimizer = torch.optim.SGD(held, 0.1, foreach=False)
        else:
            optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
            optimizer.param_groups[0]["params"].append(model[0].weight)
        train(model, optimizer, batches(6))

    assert rules(audited(program)) == [("AUD211", "high")]


def test_tied_weights_are_held_once(audited):
    assert rules(audited(lambda: read(Words()))) == []
