"""Losses that are not finite in steps which a gradient scaler skips."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_guard import guard


def severities(bad, steps=14, factor=math.inf):
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with guard(model, optimizer=optimizer) as monitor:
        for step in range(steps):
            x = torch.randn(16, 6)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), x[:, :3].argmax(-1))
            if step in bad:
                loss = loss * factor
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    issues = monitor.report().issues
    return [(found.rule, found.severity.label, found.step) for found in issues]


@pytest.mark.parametrize("bad", [{5}, {5, 6}, {12, 13}, {0}])
def test_one_or_two_skipped_steps_are_information(bad):
    assert severities(bad) == [("NUM103", "info", min(bad))]


def test_three_skipped_steps_in_a_row_are_a_fault():
    assert severities({5, 6, 7, 8}) == [("NUM103", "high", 5)]


def test_a_loss_that_is_nan_is_a_fault_at_once():
    assert severities({5}, factor=math.nan) == [("NUM103", "high", 5)]


def test_every_bad_stretch_that_recovers_is_one_note():
    found = severities({3, 8})
    assert {(rule, label) for rule, label, _ in found} == {("NUM103", "info")}
