"""What is found only at other values than the given ones, and what may differ there."""

import math

import pytest
import torch
from torch.autograd.function import once_differentiable


def _softplus(backward):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.softplus(x)

    return forward, lambda ctx, g: g * backward(ctx.saved_tensors[0])


@pytest.mark.parametrize(
    ("backward", "expected"),
    [
        (torch.sigmoid, set()),
        (lambda x: x.exp() / (1 + x.exp()), {"CHK201"}),  # inf / inf where exp overflows
        (lambda x: x.sigmoid() * (x < 20), {"CHK201"}),
    ],
)
def test_saturated_values_are_tried(faults, function, normal, backward, expected):
    assert faults(function(*_softplus(backward)), [normal(9)]) == expected


def _maximum(share):
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.maximum(a, b)

    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * torch.where(a == b, share[0], a > b), g * torch.where(a == b, share[1], b > a)

    return forward, backward


@pytest.mark.parametrize(
    ("share", "expected"),
    [((1.0, 0.0), set()), ((0.25, 0.75), set()), ((1.0, 1.0), {"CHK201"})],
)
def test_any_subgradient_is_right_at_a_tie_with_a_reference(
    faults, function, normal, share, expected
):
    inputs = [normal(5), normal(5, seed=1)]

    assert faults(function(*_maximum(share)), inputs, reference=torch.maximum) == expected


def test_infinite_gradient_of_the_reference_at_a_tried_point_defines_nothing(
    faults, function, normal
):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs().sqrt()

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.sign() / (2 * x.abs().sqrt()).clamp_min(1e-30)

    op = function(forward, backward)

    assert faults(op, [normal(6)], reference=lambda x: x.abs().sqrt()) == set()


def test_newton_iteration_is_not_judged_at_its_singularity(faults, function):
    def forward(ctx, x):
        y = 1 + x
        for _ in range(60):
            y = 0.5 * (y + x / y)
        ctx.save_for_backward(y)
        return y

    op = function(forward, lambda ctx, g: g / (2 * ctx.saved_tensors[0]))
    inputs = [torch.linspace(0.5, 2.0, 5, dtype=torch.float64).requires_grad_()]

    assert faults(op, inputs) == set()
    assert faults(lambda x: op(x) * 1.0, inputs, reference=torch.sqrt) == set()


def test_none_for_an_unmarked_operand_is_data_also_beside_a_reference(check, function, normal):
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * x * scale

    op = function(
        forward, lambda ctx, g: (g * 2 * ctx.saved_tensors[0] * ctx.saved_tensors[1], None)
    )
    unmarked = [normal(4, requires_grad=False), normal(4, seed=1, requires_grad=False)]
    marked = [x.clone().requires_grad_() for x in unmarked]

    def reference(x, scale):
        return x * x * scale

    for truth in (None, reference):
        found = check(op, unmarked, reference=truth)
        assert found.passed
        assert any("requires_grad" in issue.message for issue in found.issues)
        failed = check(op, marked, reference=truth).failures
        assert {issue.rule for issue in failed} == {"CHK202"}


def test_a_piece_of_a_concatenation_has_lost_no_sum(check, function, normal):
    op = function(
        lambda ctx, a, b: torch.cat([a, b]), lambda ctx, g: (2 * g[:3].flip(0), 3 * g[3:].flip(0))
    )

    found = check(op, [normal(3, 2), normal(3, 2, seed=1)]).failures

    assert found and not any("not heard" in issue.message for issue in found)


def test_algorithms_that_cancel_differently_pass_at_saturated_values(faults, function, normal):
    def attention(q, k, v):
        return torch.softmax(q @ k.mT, -1) @ v

    def forward(ctx, q, k, v):
        weights = (q @ k.mT).softmax(-1)
        ctx.save_for_backward(q, k, v, weights @ v)
        return weights @ v

    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        q, k, v, out = ctx.saved_tensors
        scores = q @ k.mT
        weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
        slope = weights * (g @ v.mT - (g * out).sum(-1, keepdim=True))
        return slope @ k, slope.mT @ q, weights.mT @ g

    inputs = [normal(5, 3, seed=seed) for seed in range(3)]

    op = function(forward, backward)
    assert faults(op, inputs) == faults(op, inputs, reference=attention) == set()


@pytest.mark.parametrize(("at_zero", "expected"), [(0.0, set()), (1.0, set()), ("nan", {"CHK201"})])
def test_a_kink_leaves_the_choice_of_slope_but_not_nan(
    faults, check, function, normal, at_zero, expected
):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        chosen = torch.full_like(x, math.nan) if at_zero == "nan" else at_zero * g
        return torch.where(x == 0, chosen, g * (x > 0))

    op = function(forward, backward)

    assert faults(op, [normal(6)], reference=torch.relu) == expected
    alone = check(op, [normal(6)])
    assert alone.passed
    assert any("one-sided slopes" in issue.message for issue in alone.issues) == bool(expected)


def _on_whole_numbers(faulty):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sinc(x)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = (torch.cos(math.pi * x) - torch.sinc(x)) / torch.where(x == 0, 1.0, x)
        return g * torch.where((x == x.round()) if faulty else (x == 0), 0.0, slope)

    return forward, backward


@pytest.mark.parametrize(("faulty", "expected"), [(True, {"CHK201"}), (False, set())])
def test_whole_numbers_are_tried(faults, function, normal, faulty, expected):
    assert faults(function(*_on_whole_numbers(faulty)), [normal(30)]) == expected


@pytest.mark.parametrize(("bound", "expected"), [(3.0, {"CHK201"}), (2.0, set())])
def test_a_bound_beyond_the_given_values_is_met(faults, function, normal, bound, expected):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-2, 2)

    clamp = function(forward, lambda ctx, g: g * (ctx.saved_tensors[0].abs() <= bound))

    assert faults(clamp, [(normal(20).detach() / 4).requires_grad_()]) == expected


def _largest(shared):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.amax(-1)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        tied = (x == x.amax(-1, keepdim=True)).to(g.dtype)
        return g[..., None] * (tied / tied.sum(-1, keepdim=True) if shared else tied)

    return forward, backward


@pytest.mark.parametrize("reference", [None, lambda x: x.amax(-1)])
@pytest.mark.parametrize(("shared", "expected"), [(True, set()), (False, {"CHK201"})])
def test_the_shares_of_ties_add_up(faults, function, normal, reference, shared, expected):
    assert faults(function(*_largest(shared)), [normal(3, 5)], reference=reference) == expected


def test_a_surrogate_that_the_reference_shares_is_right_at_ties_too(faults, function, normal):
    through = function(lambda ctx, x: x.round(), lambda ctx, g: g)

    assert (
        faults(through, [normal(4, 5)], reference=lambda x: x + (x.round() - x).detach()) == set()
    )


def test_a_gradient_too_small_to_move_the_output_is_no_fault(faults, function):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.logsumexp(0) - x[0]

    def backward(ctx, g):
        first = torch.zeros_like(ctx.saved_tensors[0])
        first[0] = 1
        return g * (ctx.saved_tensors[0].softmax(0) - first)

    inputs = [torch.tensor([70.0, -20.0, -40.0], dtype=torch.float64, requires_grad=True)]

    assert faults(function(forward, backward), inputs) == set()


def _balanced(cost, rounds):
    plan = -2 * cost
    for _ in range(rounds):
        plan = plan - plan.logsumexp(-1, keepdim=True)
        plan = plan - plan.logsumexp(-2, keepdim=True)
    return plan.exp()


@pytest.mark.parametrize(("damping", "expected"), [(0.0, set()), (0.01, {"CHK201"})])
def test_a_solver_is_judged_where_it_converges(faults, function, normal, damping, expected):
    def forward(ctx, cost):
        plan = _balanced(cost, 120)
        ctx.save_for_backward(plan)
        return plan

    @once_differentiable
    def backward(ctx, g):
        (plan,) = ctx.saved_tensors
        rows, columns = plan.sum(1).diag(), plan.sum(0).diag()
        system = torch.cat([torch.cat([rows, plan], 1), torch.cat([plan.mT, columns], 1)])
        known = torch.cat([(plan * g).sum(1), (plan * g).sum(0)])
        shift = torch.linalg.pinv(system + damping * torch.eye(len(known), dtype=g.dtype)) @ known
        return -2 * plan * (g - shift[: len(rows), None] - shift[None, len(rows) :])

    cost = (0.5 * normal(3, 3).detach()).requires_grad_()

    assert faults(function(forward, backward), (cost,)) == expected


@pytest.mark.parametrize(("shifted", "expected"), [(True, set()), (False, {"CHK201"})])
def test_an_overflow_counts_where_elements_are_mixed_too(
    faults, function, normal, shifted, expected
):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.logsumexp(-1)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        e = (x - x.amax(-1, keepdim=True) if shifted else x).exp()
        return g[..., None] * e / e.sum(-1, keepdim=True)

    assert faults(function(forward, backward), (normal(3, 6),)) == expected


_GROUPS = torch.tensor([0, 1, 0, 2, 1, 0])


def _largest_of_group(x, *, include_self=False):
    start = torch.zeros(3, dtype=x.dtype)
    return start.scatter_reduce(0, _GROUPS, x, "amax", include_self=include_self)


def _own_largest_of_group(share_of_all):
    def forward(ctx, x):
        low = torch.full((3,), -torch.inf, dtype=x.dtype)
        y = low.scatter_reduce(0, _GROUPS, x, "amax")
        ctx.save_for_backward(x, y)
        return y

    def backward(ctx, g):
        x, y = ctx.saved_tensors
        tied = (x == y[_GROUPS]).to(x.dtype)
        count = torch.zeros(3, dtype=x.dtype).index_add(0, _GROUPS, tied)
        return (g if share_of_all else g / count)[_GROUPS] * tied

    return forward, backward


@pytest.mark.parametrize("values", [[-1.0, -1, -0.5, 0, -0.5, 0], [0.0] * 6, [1.0, 2, 1, 3, 2, -1]])
@pytest.mark.parametrize("include_self", [True, False])
def test_an_amax_that_ties_with_a_left_out_element_is_no_fault(faults, values, include_self):
    x = torch.tensor(values, dtype=torch.float64).requires_grad_()

    assert faults(lambda x: _largest_of_group(x, include_self=include_self), [x]) == set()


@pytest.mark.parametrize(("share_of_all", "expected"), [(False, set()), (True, {"CHK201"})])
@pytest.mark.parametrize("values", [[-1.0, -1, -0.5, 0, -0.5, 0], [0.1, 0.5, 0.7, -0.3, 0.2, 0.9]])
def test_a_right_amax_is_right_beside_that_of_torch(
    faults, function, values, share_of_all, expected
):
    x = torch.tensor(values, dtype=torch.float64).requires_grad_()
    op = function(*_own_largest_of_group(share_of_all))

    assert faults(op, [x], reference=_largest_of_group) == expected


def test_a_tie_with_a_left_out_element_is_said(check):
    x = torch.tensor([-1.0, -1, -0.5, 0, -0.5, 0], dtype=torch.float64).requires_grad_()

    result = check(_largest_of_group, [x])

    assert [issue.rule for issue in result.issues] == ["CHK901"]
    assert "include_self=False" in result.issues[0].message
