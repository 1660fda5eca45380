import random
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nabla_core.severity import Severity
from nabla_guard import guard


class Loop:
    """A small classifier with its data; every part can be replaced by a test."""

    def __init__(self, model=None, optimizer=None):
        torch.manual_seed(0)
        self.model = model or nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
        self.optimizer = optimizer or torch.optim.Adam(self.model.parameters(), 1e-2)

    def batches(self, steps=8, size=16):
        inputs = torch.randn(steps, size, 6)
        return [(x, x[:, :3].argmax(-1)) for x in inputs]

    def loss(self, x, y):
        return F.cross_entropy(self.model(x), y)

    def run(self, steps=8, before_step=None):
        losses = []
        for step, (x, y) in enumerate(self.batches(steps)):
            self.optimizer.zero_grad()
            loss = self.loss(x, y)
            loss.backward()
            if before_step is not None:
                before_step(step)
            self.optimizer.step()
            losses.append(loss.detach().clone())
        return losses


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def make_loop():
    return Loop


@pytest.fixture
def issues_of():
    """Run a program under the guard and return its issues, the report included."""

    def run(program, **options):
        with guard(**options) as monitor:
            program()
        report = monitor.report()
        assert not [p for p in report.problems if p.rule in ("NAB004", "NAB008")], report.problems
        return report.issues

    return run


def bits_of(values):
    """The exact bytes of tensors and numbers; a NaN equals itself."""
    tensors = [torch.as_tensor(value).detach().contiguous().reshape(-1) for value in values]
    return [tensor.view(torch.uint8).numpy().tobytes() for tensor in tensors]


@pytest.fixture
def loud_issues_of():
    """Run a program bare and watched; what it logs and draws must be the same to the bit.

    The program is given a function ``log`` for its losses and other results. Returned are the
    issues at LOW or above, of all plugins, in order.
    """

    def run_once(program):
        torch.manual_seed(0)
        random.seed(0)
        logged = []
        program(lambda *values: logged.extend(torch.as_tensor(v).detach().clone() for v in values))
        return bits_of(logged), torch.get_rng_state()

    def run(program, **options):
        plain, drawn = run_once(program)
        with guard(**options) as monitor:
            watched, drawn_watched = run_once(program)
        report = monitor.report()
        assert not report.problems, report.problems
        assert watched == plain, "watching changed the run"
        assert torch.equal(drawn, drawn_watched), "watching drew random numbers"
        return [issue for issue in report.issues if issue.severity >= Severity.LOW]

    return run


@pytest.fixture
def calls_of_ours():
    """Count the Python functions of the project that run in one step."""

    def counted(step):
        count = 0

        def note(frame, event, _):
            nonlocal count
            count += event == "call" and "nabla_" in frame.f_globals.get("__name__", "")

        sys.setprofile(note)
        try:
            step()
        finally:
            sys.setprofile(None)
        return count

    return counted
