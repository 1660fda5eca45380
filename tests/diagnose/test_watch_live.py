"""``nabla.watch(model)``: the instrument gives the rows, and nothing of the training changes."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla
from nabla_core.errors import UsageError

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def make_net(activation=nn.ReLU):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 32), activation(), nn.Linear(32, 32), activation(), nn.Linear(32, 4)
    )


def train(model, optimizer, steps, loss_of=F.cross_entropy):
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 8, generator=generator)
        optimizer.zero_grad()
        loss = loss_of(model(x), x[:, :4].argmax(1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def watched(model, optimizer, steps=80, **options):
    with nabla.watch(model, optimizer, quiet=True, **options) as run:
        train(model, optimizer, steps)
    report = run.finish()
    assert not [p for p in report.problems if p.rule in ("NAB004", "NAB008")], report.problems
    return report


def alarms(report):
    return [issue.rule for issue in report.issues if issue.severity > issue.severity.INFO]


def test_a_healthy_training_is_not_reported():
    model = make_net()

    assert alarms(watched(model, torch.optim.Adam(model.parameters(), 3e-3), 200)) == []


def test_watching_changes_no_bit():
    plain, seen = make_net(), make_net()
    expected = train(plain, torch.optim.Adam(plain.parameters(), 3e-3), 60)
    optimizer = torch.optim.Adam(seen.parameters(), 3e-3)
    with nabla.watch(seen, optimizer, quiet=True):
        losses = train(seen, optimizer, 60)

    assert losses == expected
    assert all(map(torch.equal, plain.parameters(), seen.parameters()))


def test_nothing_is_left_behind():
    model = make_net()
    watched(model, torch.optim.SGD(model.parameters(), 0.1), 12)

    assert not any(module._forward_hooks for module in model.modules())


def test_dead_units_name_the_layer_that_feeds_them():
    model = make_net()
    with torch.no_grad():
        model[2].bias.fill_(-50.0)

    report = watched(model, torch.optim.SGD(model.parameters(), 0.1))
    (found,) = [issue for issue in report.issues if issue.rule == "RUN401"]

    assert found.where.module == "2"


def test_saturated_units_are_seen():
    model = make_net(nn.Tanh)
    with torch.no_grad():
        model[0].weight.mul_(500.0)

    assert "RUN402" in alarms(watched(model, torch.optim.SGD(model.parameters(), 1e-3)))


def test_a_rate_that_is_far_too_high_is_seen_without_logging():
    model = make_net()
    hints = {"loss": "cross_entropy", "classes": 4}

    report = watched(model, torch.optim.Adam(model.parameters(), 3.0), hints=hints)

    assert report.ranked[0].rule == "RUN201"


def test_a_rate_that_is_far_too_low_is_seen_without_logging():
    model = make_net()

    assert alarms(watched(model, torch.optim.SGD(model.parameters(), 1e-7))) == ["RUN202"]


def test_exact_rules_judge_the_same_run():
    model = make_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with nabla.watch(model, optimizer, quiet=True) as run:
        for _ in range(20):
            loss = model(torch.randn(8, 8)).square().mean()
            loss.backward()
            optimizer.zero_grad()
            optimizer.step()

    assert "AUD101" in alarms(run.finish())


def test_a_validation_loss_is_logged_besides():
    model = make_net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    stale = copy.deepcopy(model)
    x = torch.randn(64, 8)
    with nabla.watch(model, optimizer, quiet=True) as run:
        found = []
        for _ in range(6):
            train(model, optimizer, 20)
            with torch.no_grad():
                found += run.log(val_loss=F.cross_entropy(stale(x), x[:, :4].argmax(1)).item())

    assert [issue.rule for issue in found] == ["RUN111"]


def test_rivals_may_rise():
    ours, theirs = make_net(), make_net()
    first = torch.optim.SGD(ours.parameters(), 1e-3)
    second = torch.optim.SGD(theirs.parameters(), 1e-3)
    with nabla.watch(ours, [first, second], quiet=True) as run:
        for step in range(120):
            x = torch.randn(16, 8)
            for model, optimizer in ((ours, first), (theirs, second)):
                optimizer.zero_grad()
                (model(x).square().mean() + 0.05 * step).backward()
                optimizer.step()

    assert alarms(run.finish()) == []


def test_only_a_module_can_be_watched():
    with pytest.raises(UsageError, match="needs a torch.nn.Module"):
        nabla.watch("model")


@pytest.mark.parametrize("wrong", ["sgd", [1]])
def test_only_optimizers_can_be_judged(wrong):
    with pytest.raises(UsageError, match="optimizer="):
        nabla.watch(make_net(), wrong)


def test_an_interval_is_at_least_one_step():
    with pytest.raises(UsageError, match="check_every=0"):
        nabla.watch(make_net(), check_every=0)


def test_rules_without_a_signal_are_not_evaluated():
    model = make_net()
    report = watched(model, torch.optim.SGD(model.parameters(), 0.1), 40)

    assert "val_loss" in {entry.rule: entry.reason for entry in report.not_evaluated}["RUN108"]


def test_with_two_optimizers_of_one_model_no_layer_counts_as_forgotten():
    model = make_net()
    optimizers = [
        torch.optim.SGD(model[:2].parameters(), 0.05),
        torch.optim.SGD(model[2:].parameters(), 0.05),
    ]
    with nabla.watch(model, optimizers, quiet=True) as run:
        for _ in range(60):
            x = torch.randn(32, 8)
            for optimizer in optimizers:
                optimizer.zero_grad()
            F.cross_entropy(model(x), x[:, :4].argmax(1)).backward()
            for optimizer in optimizers:
                optimizer.step()

    assert alarms(run.finish()) == []


def test_a_bad_number_is_left_to_the_rules_that_name_its_origin():
    model = make_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with nabla.watch(model, optimizer, quiet=True) as run:
        train(model, optimizer, 8)
        train(model, optimizer, 2, loss_of=lambda out, _: (out - out).sqrt().sum())

    found = alarms(run.finish())

    assert [rule for rule in found if rule.startswith("RUN")] == []
    assert any(rule.startswith("NUM") for rule in found)
