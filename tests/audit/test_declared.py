"""What ``[tool.nabla.audit]`` declares, and ``nabla run --audit-only``."""

import copy
import json
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def undivided(steps=4, tasks=3):
    """Sums the means of three batches from data that looks like three tasks."""
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        for x in torch.randn(tasks, 16, 6):
            F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        optimizer.step()


class Shift(nn.Module):
    """Shape ``[B, T, 6]``: looks one step ahead."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(6, 2)

    def forward(self, x):
        return self.dense(x.roll(-1, 1))


class Centred(nn.Module):
    """Shape ``[B, 6]``: takes the mean of the batch away."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(6, 3)

    def forward(self, x):
        return self.dense(x - x.mean(0))


def fit(model, x, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


class Average(nn.Sequential):
    """A copy that follows the model, or should."""


def stale_average():
    model = nn.Sequential(nn.Linear(6, 3))
    average = Average(copy.deepcopy(model[0])).requires_grad_(False)
    source = Average(model[0])
    for _ in range(3):
        fit(source, torch.randn(16, 6), steps=3)
        average.eval()
        with torch.no_grad():
            average(torch.randn(16, 6))


@pytest.mark.parametrize(
    ("program", "table", "expected"),
    [
        (undivided, "", ("AUD103", "info")),
        (undivided, "accumulation = 3", ("AUD103", "high")),
        (lambda: fit(Shift(), torch.randn(4, 9, 6)), "", None),
        (
            lambda: fit(Shift(), torch.randn(4, 9, 6)),
            'causal = ["Shift"]',
            ("AUD407", "high"),
        ),
        (lambda: fit(Centred(), torch.randn(9, 6)), "", ("AUD406", "info")),
        (
            lambda: fit(Centred(), torch.randn(9, 6)),
            "independent_samples = true",
            ("AUD406", "high"),
        ),
        (lambda: fit(Centred(), torch.randn(9, 6)), "oracles = false", None),
        (stale_average, "", None),
        (stale_average, 'ema = ["Average"]', ("AUD210", "high")),
    ],
)
def test_what_cannot_be_observed_is_declared(
    audited, monkeypatch, tmp_path, program, table, expected
):
    (tmp_path / "pyproject.toml").write_text(f"[tool.nabla.audit]\n{table}\n")
    monkeypatch.chdir(tmp_path)

    found = [(issue.rule, issue.severity.label) for issue in audited(program)]

    assert found == ([] if expected is None else [expected])


LATE = """
import torch
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.Adam(model.parameters())
for step in range(12):
    loss = model(torch.randn(8, 6)).square().mean()
    if step == 11:
        loss = loss * float("nan")
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
"""


def test_audit_only_judges_by_no_other_rule(tmp_path):
    (tmp_path / "late.py").write_text(LATE)
    command = [sys.executable, "-m", "nabla", "run", "--audit-only", "--format", "json=out.json"]

    done = subprocess.run([*command, "late.py"], cwd=tmp_path, capture_output=True, check=False)

    report = json.loads((tmp_path / "out.json").read_text())
    assert done.returncode == 1, done.stderr
    assert {issue["rule"] for issue in report["issues"]} == {"AUD101"}
