"""CHK901, CHK902 and the numerical oracle itself."""

import math

import pytest
import torch
import torch.nn.functional as F

from nabla_check.truth.oracle import Curve, glance, judge
from nabla_check.truth.resolution import resolution_of

FLOAT64 = resolution_of([torch.float64])


def curve(function, point, weights=None):
    x = torch.tensor(point, dtype=torch.float64)
    weights = torch.ones_like(x) if weights is None else weights
    return Curve(lambda t: [function(x + t)], [weights], [function(x)])


@pytest.mark.parametrize(
    ("function", "slope"),
    [(torch.sin, math.cos(0.7)), (torch.exp, math.exp(0.7)), (torch.square, 1.4)],
)
@pytest.mark.parametrize(
    ("error", "state"), [(0.0, "agrees"), (1e-12, "agrees"), (1e-7, "differs")]
)
def test_known_derivatives(function, slope, error, state):
    verdict = judge(curve(function, [0.7]), slope * (1 + error), abs(slope), FLOAT64)

    assert verdict.state == state


def test_error_bar_covers_the_numerical_error():
    verdict = judge(curve(torch.exp, [0.3]), math.exp(0.3), 1.0, FLOAT64)

    assert abs(verdict.numeric - math.exp(0.3)) <= verdict.bar


def test_glance_acquits_but_never_accuses():
    assert glance(curve(torch.sin, [0.7]), math.cos(0.7), 1.0, FLOAT64)
    assert not glance(curve(torch.sin, [0.7]), 2 * math.cos(0.7), 1.0, FLOAT64)


def test_kink_is_a_state_of_its_own():
    assert judge(curve(torch.abs, [0.0]), 0.5, 0.5, FLOAT64).state == "kink"
    assert judge(curve(torch.square, [0.0]), 0.0, 0.0, FLOAT64).state == "agrees"


def test_no_resolution_below_float32():
    assert resolution_of([torch.bfloat16]) is None
    assert resolution_of([torch.float64, torch.float32]).unit == 2.0**-23


KINKS = {
    "relu at 0": (torch.relu, [0.0, 1.0, -1.0, 2.0]),
    "leaky relu at 0": (lambda x: F.leaky_relu(x, 0.1), [0.0, 1.0, -1.0]),
    "hardtanh at 1": (F.hardtanh, [1.0, 0.5, -1.0]),
    "max with a tie": (lambda x: x.amax(0, keepdim=True), [1.0, 1.0, 0.5]),
    "first maximum of a tie": (lambda x: x.max(0)[0], [1.0, 1.0, 0.5]),
    "clamp at its edge": (lambda x: x.clamp(0, 1), [0.0, 1.0, 0.5]),
    "abs at 0": (torch.abs, [0.0, 1.0]),
    "norm at 0": (torch.norm, [0.0, 0.0]),
    "nearly a tie": (lambda x: x.amax(), [1.0, 1.0 + 1e-7]),
    "nearly a kink": (torch.relu, [1e-7, -1e-7, 1.0]),
    "steep": (lambda x: (1e6 * x).sin(), [0.3, 0.7]),
    "huge": (lambda x: 1e8 * x**3, [0.3, 0.7]),
    "tiny argument": (torch.log, [1e-8, 3e-8]),
}


@pytest.mark.parametrize("name", KINKS)
@pytest.mark.parametrize("seed", [0, 1])
def test_correct_operators_at_awkward_points_pass(faults, name, seed):
    function, values = KINKS[name]
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)

    assert faults(function, [x], seed=seed) == set()


WIDE = {
    "relu": (torch.relu, 30),
    "mean of absolute values": (lambda x: x.abs().mean(), 24),
    "clamp": (lambda x: x.clamp(-1, 1), 28),
    "sort": (lambda x: x.sort(-1).values, 30),
    "softmax": (lambda x: x.softmax(-1), 16),
}


@pytest.mark.parametrize("name", WIDE)
def test_many_kinks_somewhere_are_no_kink_here_and_cost_few_calls(check, name):
    function, most = WIDE[name]
    x = torch.randn(260, 260, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    result = check(function, [x.requires_grad_()])

    assert result.issues == ()
    assert result.forward_calls <= most and result.backward_calls <= 16


@pytest.mark.parametrize("wrong", ["everywhere", "in one row", "in one element"])
def test_faults_of_a_wide_operator_with_kinks_are_found(faults, function, wrong):
    def backward(ctx, g):
        gradient = g * (ctx.saved_tensors[0] > 0)
        part = {"everywhere": ..., "in one row": (slice(7, 8),), "in one element": (7, 7)}[wrong]
        gradient[part] += g[part]
        return gradient

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()

    x = torch.randn(260, 260, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    assert "CHK201" in faults(function(forward, backward), [x.requires_grad_()])


def test_gradients_near_the_largest_number_are_not_scaled_up(check):
    x = torch.tensor([704.0, 1.0, 800.0], dtype=torch.float64, requires_grad=True)

    assert check(torch.exp, [x]).passed


@pytest.mark.parametrize("factor", [2.0, -1.0])
def test_wrong_gradient_on_a_kink_is_found_nearby(check, function, factor):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()

    op = function(forward, lambda ctx, g: factor * g * (ctx.saved_tensors[0] > 0))
    x = torch.tensor([0.0, 1.0, -1.0, 2.0], dtype=torch.float64, requires_grad=True)

    result = check(op, [x], level="first-order")

    assert {issue.rule for issue in result.issues} == {"CHK201", "CHK901"}
    assert "near" in result.failures[0].evidence["setting"]


@pytest.mark.parametrize("seed", range(4))
def test_one_per_cent_in_a_steep_function_is_found(faults, function, seed):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (1e6 * x).sin()

    op = function(forward, lambda ctx, g: 1.01e6 * g * (1e6 * ctx.saved_tensors[0]).cos())
    x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)

    assert faults(op, [x], level="first-order", seed=seed) == {"CHK201"}


def test_tiny_output_does_not_hide_a_factor(faults, function, normal):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 1e-7 * x.sin()

    op = function(forward, lambda ctx, g: 2e-7 * g * ctx.saved_tensors[0].cos())

    assert faults(op, [normal(4)], level="first-order") == {"CHK201"}


def test_nan_in_the_input_is_inconclusive(check):
    x = torch.tensor([math.nan, 1.0], dtype=torch.float64, requires_grad=True)

    result = check(torch.sin, [x], level="first-order")

    assert result.passed
    assert "NaN" in result.issues[0].message


def test_bfloat16_only_operator_without_reference_is_inconclusive(check, function, normal):
    def forward(ctx, x):
        if x.dtype is not torch.bfloat16:
            raise TypeError("bfloat16 only")
        ctx.save_for_backward(x)
        return x * x

    op = function(forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0])
    result = check(op, [normal(8, dtype=torch.bfloat16)], level="first-order")

    assert result.passed
    assert [issue.rule for issue in result.issues] == ["CHK902"]


def test_size_limit_of_the_numerical_derivative_is_said(check, normal):
    result = check(torch.sin, [normal(20)], level="first-order", max_finite_difference_elements=10)

    assert "max_finite_difference_elements" in result.issues[0].message
