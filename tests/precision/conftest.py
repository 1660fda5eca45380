import pytest
import torch
from torch import nn

import nabla_precision


class Shift(nn.Module):
    """Loses the digits of its input: a planted cancellation."""

    def __init__(self, by=300.0):
        super().__init__()
        self.by = by

    def forward(self, x):
        return (x + self.by) - self.by


class Square(nn.Module):
    """Leaves the range of float16 on the way, not of bfloat16."""

    def forward(self, x):
        return (x * 400).square() / 160000


@pytest.fixture
def parts():
    return {"shift": Shift, "square": Square}


@pytest.fixture
def audited():
    """Audit a model on one batch; all three dtypes and a classification loss by default."""

    def run(model, *inputs, loss_fn=None, **options):
        batch = inputs[0] if len(inputs) == 1 else inputs
        return nabla_precision.audit(model, batch, loss_fn=loss_fn, **options)

    return run


@pytest.fixture
def named():
    """The modules that are named, with the dtypes and rules."""

    def read(report):
        found = {
            (issue.rule, issue.where.module, issue.evidence["dtypes"])
            for issue in report.issues
            if issue.rule != "PRC104"
        }
        return sorted(found)

    return read


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
