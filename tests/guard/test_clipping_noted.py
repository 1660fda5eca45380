"""``clip_grad_norm_`` is noted as one call; what goes wrong in it or after it is still named."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_ as imported_before

from nabla_guard import guard

LATE = 30  # long after the loop has become calm


class Clipped:
    """Trains a small net whose gradients are clipped; something else may be done to them late."""

    def __init__(self, clip=None, layers=2, late=None):
        torch.manual_seed(0)
        widths = [8] * (layers - 1)
        self.model = nn.Sequential(*(nn.Linear(8, width) for width in widths), nn.Linear(8, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.clip = clip or (lambda *args: nn.utils.clip_grad_norm_(*args))
        self.late = late
        self.seen = []

    def step(self, limit=1.0):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(torch.randn(8, 8)), torch.randint(0, 3, (8,))).backward()
        norm = self.clip(self.model.parameters(), limit)
        if self.late is not None and len(self.seen) == LATE:
            self.late(self.model, norm)
        self.seen.append(norm)
        self.optimizer.step()

    def run(self, steps=LATE + 4, limits=None):
        for step in range(steps):
            self.step((limits or {}).get(step, 1.0))


def divided(model, norm):
    for parameter in model.parameters():
        parameter.grad.div_(norm - norm)  # born by hand


@pytest.mark.parametrize("clip", [None, imported_before], ids=["looked up", "imported before"])
@pytest.mark.parametrize(("late", "limit", "op"), [(None, math.nan, "mul"), (divided, 1, "div")])
def test_what_goes_wrong_in_or_after_clipping_is_named(clip, late, limit, op):
    program = Clipped(clip, late=late)
    with guard(program.model, optimizer=program.optimizer) as monitor:
        program.run(limits={LATE: limit})
    found = next(issue for issue in monitor.report().issues if issue.rule == "NUM102")
    assert (found.step, found.where.op) == (LATE, op)
    assert found.where.file.endswith("test_clipping_noted.py")


def test_clipping_does_not_cost_calls_for_each_parameter(calls_of_ours):
    counts = []
    for layers in (2, 12):
        program = Clipped(layers=layers)
        with guard(program.model, optimizer=program.optimizer, mode="light"):
            program.run(20)
            counts.append(sorted(calls_of_ours(program.step) for _ in range(8))[4])
    assert counts[1] - counts[0] < 20 * 12  # 24 parameters and not 4


@pytest.mark.parametrize("mode", ["light", "standard"])
def test_clipping_is_what_it_was(mode):
    free = Clipped()
    free.run()
    watched = Clipped()
    with guard(watched.model, optimizer=watched.optimizer, mode=mode) as monitor:
        watched.run()
    assert all(map(torch.equal, free.seen, watched.seen))
    assert all(map(torch.equal, free.model.parameters(), watched.model.parameters()))
    assert not [issue for issue in monitor.report().issues if issue.rule.startswith("NUM")]


def test_its_other_forms_are_what_they_were():
    program = Clipped()
    program.run(1)
    weight = program.model[0].weight
    norm = weight.grad.norm()
    with guard(program.model, optimizer=program.optimizer):
        program.run(3)
        weight.grad.fill_(2.0)
        norm = weight.grad.norm()
        assert torch.equal(nn.utils.clip_grad_norm_(weight, 1e9), norm)
        assert torch.equal(nn.utils.clip_grad_norm_(parameters=[weight], max_norm=1e9), norm)
        with pytest.warns(UserWarning, match="empty generator"):
            nn.utils.clip_grad_norm_((p for p in ()), 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert nn.utils.clip_grad_norm_([], 1.0) == 0
        weight.grad[0, 0] = math.nan
        with pytest.raises(RuntimeError, match="non-finite"):
            nn.utils.clip_grad_norm_(weight, 1.0, error_if_nonfinite=True)
