"""Models whose samples no rule can tell apart: run alone only where that gives the same."""

import pytest
import torch
from torch import nn

import nabla


class _HalfAndHalf(nn.Module):
    """Another layer for each half of the batch: no sample can run alone."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        half = len(x) // 2
        return torch.cat([self.first(x[:half]), self.second(x[half:])])


class _Centred(nn.Module):
    """Normalises over the batch by itself."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        hidden = self.inner(x)
        return self.head(torch.tanh(hidden - hidden.mean(0, keepdim=True)))


@pytest.mark.parametrize(
    ("make", "left_out"),
    [
        (_HalfAndHalf, {"first.weight", "first.bias", "second.weight", "second.bias"}),
        (_Centred, {"inner.weight"}),
    ],
)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_samples_that_depend_on_each_other_are_not_run_alone(make, left_out, reduction):
    torch.manual_seed(0)
    model = make().double()
    x, y = torch.randn(8, 4).double(), torch.randint(3, (8,))
    result = nabla.trace.samples(model, nn.CrossEntropyLoss(reduction=reduction), (x, y))

    assert set(result.missing) == left_out
    assert all("depend on each other" in why for why in result.missing.values())
    assert "GEO901" in {issue.rule for issue in result.issues}


@pytest.mark.parametrize("make", [_HalfAndHalf, _Centred])
def test_samples_that_depend_on_each_other_have_a_gradient_in_this_batch(make, truth):
    torch.manual_seed(0)
    model = make().double()
    x, y = torch.randn(8, 4).double(), torch.randint(3, (8,))
    rows = truth.rows(model, truth.loss, x, y)

    assert truth.error(nabla.trace.samples(model, truth.loss, (x, y)).gram, rows @ rows.T) < 1e-12


class _EachAlone(nn.Module):
    """A loop over the samples."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return torch.stack([self.head(torch.tanh(self.inner(row))) for row in x])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_samples_that_run_alone_tell_how_the_loss_adds_up(reduction, truth):
    torch.manual_seed(0)
    model = _EachAlone().double()
    x, y = torch.randn(6, 4).double(), torch.randint(3, (6,))
    rows = truth.rows(model, truth.loss, x, y)
    result = nabla.trace.samples(model, nn.CrossEntropyLoss(reduction=reduction), (x, y))

    assert result.reduction == reduction and not result.missing
    assert truth.error(result.gram, rows @ rows.T) < 1e-12


def test_complex_numbers_on_the_way(truth):
    class Filter(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain, self.head = nn.Parameter(torch.randn(5)), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(torch.fft.irfft(torch.fft.rfft(x) * self.gain, n=8))

    torch.manual_seed(0)
    model, x, y = Filter().double(), torch.randn(8, 8).double(), torch.randint(3, (8,))
    rows = truth.rows(model, truth.loss, x, y)
    result = nabla.trace.samples(model, truth.loss, (x, y))

    assert truth.error(result.gram, rows @ rows.T) < 1e-12
    assert result.issues == () and "loop" not in result.coverage.values()
