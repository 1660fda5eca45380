"""accelerate has no callbacks: its loop is watched as any other, and must not hide anything."""

import pytest

pytest.importorskip("accelerate", reason="accelerate is not installed")

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import nabla


@pytest.fixture
def train():
    def run(case, watched=True, accumulate=1):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
        data = DataLoader(TensorDataset(case.x, case.y), batch_size=16 // accumulate)
        optimizer = torch.optim.SGD(case.net.trained(), lr=case.net.rate)
        model, optimizer, data = accelerator.prepare(case.net, optimizer, data)
        run = nabla.watch(accelerator.unwrap_model(model), quiet=True) if watched else None
        for _ in range(5):
            for x, y in data:
                with accelerator.accumulate(model):
                    accelerator.backward(case.loss(model(x), y))
                    optimizer.step()
                    optimizer.zero_grad()
        return run and run.finish()

    return run


def test_the_verdict_is_that_of_the_plain_loop(case, by_hand, train, verdicts, fault, rule):
    alone = verdicts(by_hand(case(fault)))
    found = verdicts(train(case(fault)))

    assert rule in alone
    assert rule in found


def test_a_healthy_training_is_silent_and_unchanged(case, train, verdicts):
    watched, again = case("none"), case("none")
    report = train(watched)
    train(again, watched=False)

    assert verdicts(report) == set()
    assert report.run.steps == 50
    pairs = zip(watched.net.parameters(), again.net.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_accumulated_gradients_are_one_step(case, train, verdicts):
    report = train(case("none"), accumulate=2)

    assert verdicts(report) == set()
    assert report.run.steps == 50
