"""AUD303 to AUD306: learning rates and schedules."""

import pytest
import torch
from torch.nn import functional as F
from torch.optim import lr_scheduler as schedules


def rules(issues):
    return [(issue.rule, issue.severity.label) for issue in issues]


@pytest.fixture
def trained(audited, net, batches):
    """Train with a schedule; ``when`` says where in the iteration it is stepped."""

    def run(make, when="after", steps=12, every=1):
        def program():
            model = net()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            scheduler = make(optimizer)
            for index, (x, y) in enumerate(batches(steps)):
                if when == "before":
                    scheduler.step()
                (F.cross_entropy(model(x), y) / every).backward()
                if when == "each":
                    scheduler.step()
                if index % every == every - 1:
                    optimizer.step()
                    optimizer.zero_grad()
                    if when == "after":
                        scheduler.step()
            if when == "end":
                scheduler.step()

        return rules(audited(program))

    return run


# ---------------------------------------------------------------- AUD303
def test_a_schedule_that_ran_out(trained):
    assert trained(lambda opt: schedules.LinearLR(opt, 1.0, 0.0, 5)) == [("AUD303", "high")]


def test_a_rate_that_never_rises(trained):
    found = trained(lambda opt: schedules.LambdaLR(opt, lambda step: step // 100))
    assert found == [("AUD303", "medium")]


def test_a_warm_up_that_waits_is_information_in_the_end(trained):
    found = trained(lambda opt: schedules.LambdaLR(opt, lambda step: float(step > 4)))
    assert found == [("AUD303", "info")]


def test_one_step_without_a_rate_is_a_warm_up(trained):
    assert trained(lambda opt: schedules.LambdaLR(opt, lambda step: min(1.0, step / 5))) == []


def test_two_steps_without_a_rate_are_no_pattern(trained):
    assert (
        trained(lambda opt: schedules.LambdaLR(opt, lambda step: float(step not in (5, 6)))) == []
    )


# ---------------------------------------------------------------- AUD304
def test_stepping_a_decay_per_micro_batch(trained):
    found = trained(lambda opt: schedules.ExponentialLR(opt, 0.99), "each", 24, 4)
    assert found == [("AUD304", "high")]


def test_stepping_a_schedule_of_known_length_per_micro_batch(trained):
    found = trained(lambda opt: schedules.LinearLR(opt, 1.0, 0.5, 40), "each", 24, 2)
    assert ("AUD304", "medium") in found


@pytest.mark.parametrize(
    "make",
    [
        lambda opt: schedules.SequentialLR(
            opt, [schedules.LinearLR(opt, 0.1, 1.0, 3), schedules.ExponentialLR(opt, 0.9)], [3]
        ),
        lambda opt: schedules.ChainedScheduler(
            [schedules.ConstantLR(opt, 0.5, 3), schedules.ExponentialLR(opt, 0.9)]
        ),
        lambda opt: schedules.CosineAnnealingWarmRestarts(opt, 4),
        lambda opt: schedules.CyclicLR(opt, 0.01, 0.1, 4),
    ],
)
def test_composed_and_cyclic_schedules_are_silent(trained, make):
    assert trained(make) == []


# ---------------------------------------------------------------- AUD305
def test_stepping_the_schedule_first(trained):
    found = trained(lambda opt: schedules.ExponentialLR(opt, 0.99), "before")
    assert found == [("AUD305", "medium")]


def test_stepping_the_schedule_first_in_each_epoch(audited, net, batches):
    def program():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = schedules.StepLR(optimizer, 1, 0.9)
        for _ in range(3):
            scheduler.step()
            for x, y in batches(4):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()

    assert rules(audited(program)) == [("AUD305", "medium")]


def test_catching_up_before_a_resumed_run_is_silent(audited, net, batches):
    def program():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = schedules.StepLR(optimizer, 1, 0.9)
        for _ in range(2):
            scheduler.step()
        for x, y in batches(6):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()

    assert rules(audited(program)) == []


# ---------------------------------------------------------------- AUD306
def test_a_cosine_past_its_end(trained):
    found = trained(lambda opt: schedules.CosineAnnealingLR(opt, T_max=5), steps=14)
    assert found == [("AUD306", "medium")]


def test_a_schedule_in_steps_that_is_stepped_per_epoch(trained):
    found = trained(lambda opt: schedules.CosineAnnealingLR(opt, T_max=12), "end", 12)
    assert found == [("AUD306", "medium")]


@pytest.mark.parametrize("length", [12, 13, 20])
def test_a_cosine_of_the_right_length_is_silent(trained, length):
    assert trained(lambda opt: schedules.CosineAnnealingLR(opt, T_max=length), steps=12) == []


def test_a_run_that_stops_early_is_information(trained):
    found = trained(lambda opt: schedules.CosineAnnealingLR(opt, T_max=40), steps=12)
    assert found == [("AUD306", "info")]
