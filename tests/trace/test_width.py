"""GEO504: what a step changes at a layer, against the width of the model."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nabla
from nabla_core.errors import UsageError
from nabla_trace.options import TraceOptions
from nabla_trace.width_result import LayerGrowth
from nabla_trace.width_verdicts import width_issues

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(32, 16, generator=GENERATOR)
LABELS = torch.randint(4, (32,), generator=GENERATOR)


def network(width):
    return nn.Sequential(
        nn.Linear(16, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(width, 4),
    )


def loss(model):
    return F.cross_entropy(model(X), LABELS)


def one_rate(width):
    """The default initialisation and one rate for all widths."""
    model = network(width)
    return model, torch.optim.Adam(model.parameters(), 1e-2)


def rates_by_width(width):
    """Maximal update parametrisation."""
    model = network(width)
    with torch.no_grad():
        model[5].weight.mul_((32 / width) ** 0.5)
    wide = [model[2].weight, model[5].weight]
    rest = [model[0].weight, *(model[i].bias for i in (0, 2, 5))]
    groups = [{"params": wide, "lr": 1e-2 * 32 / width}, {"params": rest}]
    return model, torch.optim.Adam(groups, 1e-2)


def test_one_rate_for_all_widths_is_found_at_the_first_layer_that_grows():
    result = nabla.trace.coordinate_check(one_rate, loss)

    assert [(i.rule, i.where.module, i.where.op) for i in result.issues] == [
        ("GEO504", "2", "grows")
    ]
    assert result.layers[1].slope > 0.5
    assert result.passed and "slope" in result.format()


def test_rates_that_go_with_the_width_are_healthy():
    result = nabla.trace.coordinate_check(rates_by_width, loss)

    assert result.issues == ()
    assert max(abs(layer.slope) for layer in result.layers) < 0.2
    assert len(result.to_dict()["layers"]) == 3


def growth(slope, scatter=0.0):
    """Sizes on an exact power law, every other run off by a factor."""
    widths = (32, 64, 128, 256)
    runs = [[w**slope, w**slope * math.exp(scatter)] for w in widths]
    return LayerGrowth.fitted("layer", widths, runs)


@pytest.mark.parametrize(
    ("slope", "expected"),
    [(0.29, []), (0.31, ["grows"]), (-0.29, []), (-0.31, ["shrinks"]), (0.0, [])],
)
def test_the_limit_of_the_slope(slope, expected):
    found = width_issues([growth(slope)], TraceOptions())

    assert [issue.where.op for issue in found] == expected


def test_a_slope_that_is_not_sure_is_no_verdict():
    unsure = growth(0.4, scatter=1.0)

    assert unsure.slope == pytest.approx(0.4) and unsure.error > 0.05
    assert list(width_issues([unsure], TraceOptions())) == []


@pytest.mark.parametrize(("bad", "why"), [(math.nan, "not finite"), (0.0, "does not change")])
def test_what_cannot_be_fitted_is_said(bad, why):
    found = LayerGrowth.fitted("layer", (1, 2, 4), [[1.0], [1.0], [bad]])

    assert why in found.why_not and math.isnan(found.slope)
    assert list(width_issues([found], TraceOptions())) == []


def test_frozen_layers_are_not_judged_and_the_random_state_stays():
    def frozen(width):
        model = network(width)
        model.requires_grad_(False)
        model[5].requires_grad_(True)
        return model, torch.optim.SGD(model[5].parameters(), 0.1)

    before = torch.get_rng_state()
    result = nabla.trace.coordinate_check(frozen, loss, widths=(16, 32, 64), seeds=1)

    assert [bool(layer.why_not) for layer in result.layers] == [True, True, False]
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("widths", [(32, 64), (32, 48, 64), ()])
def test_too_few_widths_are_refused(widths):
    with pytest.raises(UsageError, match="at least 3 widths"):
        nabla.trace.coordinate_check(one_rate, loss, widths=widths)
