import math
import random

import pytest

from nabla_core.records import StepRecord
from nabla_core.severity import Severity
from nabla_diagnose.checks.roster import make_checks
from nabla_diagnose.detector import RunDetector
from nabla_diagnose.options import DiagnoseOptions

LAYER_EVERY = 10


class Judged:
    """What was found in a run."""

    def __init__(self, issues):
        self.issues = issues

    @property
    def rules(self):
        """Rules of the alarms, in the order in which they were raised."""
        return [issue.rule for issue in self.issues if issue.severity > Severity.INFO]

    @property
    def notes(self):
        return [issue.rule for issue in self.issues if issue.severity <= Severity.INFO]

    def one(self, rule):
        (found,) = [issue for issue in self.issues if issue.rule == rule]
        return found


def run_of(rows, hints=None, layers=None, first_step=0, stride=1, restart=None):
    """Judge a run; ``restart`` is the row at which the steps start again."""
    detector = RunDetector(make_checks(), DiagnoseOptions(**(hints or {})))
    found = []
    for index, row in enumerate(rows):
        table = layers(index) if layers and index % LAYER_EVERY == 0 else {}
        layout = tuple(dict.fromkeys(name for column in table.values() for name in column))
        record = StepRecord(
            step=first_step
            + (index if restart is None or index < restart else index - restart) * stride,
            time_s=float(index),
            signals={name: value for name, value in row.items() if value is not None},
            layers={
                name: [column.get(layer, math.nan) for layer in layout]
                for name, column in table.items()
            },
            layout=layout,
        )
        found += detector.step(record)
    found += detector.finish()
    return Judged(found)


def descent(rows, *, start=2.0, end=0.3, noise=0.05, seed=0, scale=60.0):
    """A healthy loss: exponential descent with noise."""
    rng = random.Random(seed)
    return [
        end + (start - end) * math.exp(-row / scale) + noise * rng.gauss(0.0, 1.0)
        for row in range(rows)
    ]


def healthy_rows(rows=300, seed=0, **changes):
    """A healthy run that logs loss, rate, gradient norm and update ratio."""
    rng = random.Random(seed + 1)
    losses = descent(rows, seed=seed, **changes)
    return [
        {
            "loss": loss,
            "lr": 1e-3,
            "grad_norm": 0.8 * math.exp(0.25 * rng.gauss(0.0, 1.0)),
            "update_ratio": 4e-3 * math.exp(0.1 * rng.gauss(0.0, 1.0)),
        }
        for loss in losses
    ]


def healthy_layers(index):
    return {
        "grad_norm": {"inp": 0.2, "mid.0": 0.3, "mid.2": 0.3, "head": 0.4},
        "weight_norm": {"inp": 3.0, "mid.0": 4.0, "mid.2": 4.0, "head": 1.0 + 1e-3 * index},
        "update_ratio": {"inp": 4e-3, "mid.0": 3e-3, "mid.2": 3e-3, "head": 5e-3},
        "dead_fraction": {"inp_act": 0.0, "mid.1": 0.03, "mid.3": 0.05, "drop": 0.05},
        "zero_fraction": {"inp_act": 0.513, "mid.1": 0.477, "mid.3": 0.491, "drop": 0.541},
        "activation_std": {"inp_act": 0.4, "mid.1": 0.3, "mid.3": 0.2, "head": 0.5},
        "saturated_fraction": {"inp_act": 0.01, "mid.1": 0.02},
    }


@pytest.fixture
def judge():
    return run_of


@pytest.fixture
def healthy():
    return healthy_rows


@pytest.fixture
def falling():
    return descent


@pytest.fixture
def sound_layers():
    return healthy_layers
