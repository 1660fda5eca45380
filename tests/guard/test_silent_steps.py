"""Steps that silently learn nothing: skipped, rounded away, or flushed to zero."""

import math
from collections import deque

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_guard import guard
from nabla_guard.shadow.scales import ScaleFacts
from nabla_guard.verdicts.scale_collapse import CollapseLimits, ScaleCollapseDetector


def numeric(monitor):
    return [found for found in monitor.report().issues if found.rule.startswith("NUM")]


def batches(steps, dtype=torch.float32):
    torch.manual_seed(0)
    return [(torch.randn(16, 32).to(dtype), torch.randint(0, 3, (16,))) for _ in range(steps)]


def mlp(dtype=torch.float32):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 3)).to(dtype)


# ---------------------------------------------------------------------- NUM131
def scaled_run(factor, steps=40, interval=2000, every=1, model=None):
    model = model or mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-42)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=interval)
    with guard() as monitor:
        for step, (x, y) in enumerate(batches(steps)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            scaler.scale(loss * (factor if step % every == 0 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
        del scaler  # as at the end of a training function, before watching ends
    return numeric(monitor)


def test_gradients_that_overflow_at_any_scale_collapse_it():
    model = mlp()
    model[0].weight.register_hook(lambda grad: grad * math.inf)
    (issue,) = scaled_run(1.0, model=model)
    assert issue.rule == "NUM131"
    assert issue.evidence["scale"].value < 1.0
    assert "overflow without any scaling" in issue.message


def test_a_scaler_that_finds_its_scale_is_healthy():
    assert scaled_run(1e36) == []


def test_steps_skipped_again_and_again_are_reported():
    issues = scaled_run(1e37, steps=60, every=3, interval=1)
    assert issues == []  # raised after each good step: skipping is what was asked for

    (issue,) = scaled_run(2e38, steps=60, every=2)
    assert issue.rule == "NUM131"


class _Gathering:
    """Facts of a loop that has one scaler."""

    def __init__(self, facts):
        self.facts = [facts]

    def gather(self, family):
        return self


@pytest.mark.parametrize(
    ("skips", "updates", "interval", "found"),
    [(16, 64, 2000, 0), (17, 64, 2000, 1), (17, 31, 2000, 0), (40, 64, 1, 0)],
)
def test_the_share_of_skipped_steps_has_a_limit(skips, updates, interval, found):
    recent = deque([True] * skips + [False] * (64 - skips))
    facts = ScaleFacts(
        initial=65536.0, scale=1024.0, updates=updates, recent=recent, growth_interval=interval
    )
    detector = ScaleCollapseDetector(_Gathering(facts))

    assert len(list(detector.finish())) == found
    assert list(detector.finish()) == []  # once


@pytest.mark.parametrize(("in_a_row", "found"), [(24, 0), (25, 1)])
def test_skips_in_a_row_have_a_limit(in_a_row, found):
    facts = ScaleFacts(initial=2.0**40, scale=2.0**16, in_a_row=in_a_row, recent=deque())
    detector = ScaleCollapseDetector(_Gathering(facts), CollapseLimits(in_a_row=25))

    assert len(list(detector.finish())) == found


# ---------------------------------------------------------------------- NUM141
def half_run(optimizer, *, dtype=torch.bfloat16, steps=8, before=lambda step, optimizer: None):
    model = mlp(dtype)
    optimizer = optimizer(model.parameters())
    with guard() as monitor:
        for step, (x, y) in enumerate(batches(steps, dtype)):
            before(step, optimizer)
            optimizer.zero_grad()
            F.cross_entropy(model(x).float(), y).backward()
            optimizer.step()
    return [(found.rule, found.step) for found in numeric(monitor)]


def test_steps_with_a_closure_are_not_judged():
    model = mlp(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)

    def run(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        return loss

    with guard() as monitor:
        for x, y in batches(8, torch.bfloat16):
            optimizer.step(lambda x=x, y=y: run(x, y))
    assert numeric(monitor) == []


def sgd(rate):
    return lambda parameters: torch.optim.SGD(parameters, rate)


def test_updates_below_the_last_bit_are_lost():
    assert half_run(sgd(1e-3)) == [("NUM141", 4)]


def test_updates_above_the_last_bit_are_healthy():
    assert half_run(sgd(0.5)) == []
    assert half_run(lambda parameters: torch.optim.Adam(parameters, 1e-2)) == []


def test_single_precision_loses_no_such_update():
    assert half_run(sgd(1e-3), dtype=torch.float32) == []


def test_a_warm_up_of_the_learning_rate_is_not_judged():
    def warm_up(step, optimizer):
        optimizer.param_groups[0]["lr"] = 1e-4 * (step + 1)

    assert half_run(sgd(1e-4), before=warm_up) == []


class WithMasters(torch.optim.Optimizer):
    """Keeps float32 weights and rounds them for the model."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-4})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            master = state.setdefault("master", parameter.float())
            master -= self.param_groups[0]["lr"] * parameter.grad.float()
            parameter.copy_(master)


def test_an_optimizer_with_a_wide_copy_loses_nothing():
    assert half_run(WithMasters) == []


# ---------------------------------------------------------------------- NUM112
def gradient_run(scale, *, autocast, dtype=torch.float32, steps=5):
    model = mlp(dtype)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    with guard() as monitor:
        for x, y in batches(steps, dtype):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16, enabled=autocast):
                logits = model(x)
            (F.cross_entropy(logits.float(), y) * scale).backward()
            optimizer.step()
    return [(found.rule, found.step) for found in numeric(monitor)]


@pytest.mark.parametrize("autocast", [True, False])
def test_float16_gradients_without_a_scaler_are_flushed(autocast):
    dtype = torch.float32 if autocast else torch.float16
    issues = gradient_run(2e-3, autocast=autocast, dtype=dtype)
    assert ("NUM112", 3) in issues


def test_float16_gradients_of_ordinary_size_are_healthy():
    assert gradient_run(1.0, autocast=True) == []


def test_float32_gradients_may_be_small():
    assert gradient_run(1e-6, autocast=False) == []
