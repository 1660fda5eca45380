"""CHK101-103, CHK201, CHK202, CHK205: values and gradients, with and without a reference."""

import math

import pytest
import torch
import torch.nn.functional as F


def test_healthy_square_passes_with_and_without_a_reference(faults, square, normal):
    op = square(lambda x, g: g * 2 * x)

    assert faults(op, [normal(4, 3)]) == set()
    assert faults(op, [normal(4, 3)], reference=torch.square) == set()


@pytest.mark.parametrize("level", ["first-order", "full"])
@pytest.mark.parametrize("reference", [None, torch.square])
def test_factor_is_found_and_named(check, square, normal, level, reference):
    result = check(square(lambda x, g: g * x), [normal(4, 3)], reference=reference, level=level)

    (issue,) = result.failures
    assert issue.rule == "CHK201"
    assert issue.evidence["pattern"] == "factor"
    assert issue.where.parameter == "x"
    assert "0.5 (1/2)" in issue.message


def test_flipped_sign_is_named(check, square, normal):
    (issue,) = check(square(lambda x, g: -g * 2 * x), [normal(5)]).failures

    assert issue.evidence["pattern"] == "sign"


def test_one_wrong_element_is_named_with_its_index(check, square, normal):
    def backward(x, g):
        out = g * 2 * x
        out[1, 2] = 0
        return out

    (issue,) = check(square(backward), [normal(3, 4)]).failures

    assert issue.evidence["pattern"] == "one element"
    assert issue.evidence["index"] == "[1, 2]"


def test_transposed_gradient_is_named(check, function, normal):
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.T, (x.T @ g).T.contiguous()

    (issue,) = check(function(forward, backward), [normal(3, 3), normal(3, 3, seed=1)]).failures

    assert (issue.where.parameter, issue.evidence["pattern"]) == ("w", "transpose")


def scaled_rows(function, reduce):
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, reduce(g * x)

    return function(forward, backward)


def test_lost_sum_over_the_batch_is_named(check, function, normal):
    op = scaled_rows(function, lambda rows: rows[0])

    (issue,) = check(op, [normal(5, 3), normal(3, seed=1)]).failures

    assert (issue.where.parameter, issue.evidence["pattern"]) == ("w", "missing reduction")


def test_lost_last_block_is_named_with_its_start(check, function, normal):
    op = scaled_rows(function, lambda rows: rows[: len(rows) // 4 * 4].sum(0))

    (issue,) = check(op, [normal(6, 3), normal(3, seed=1)]).failures

    assert issue.evidence["pattern"] == "boundary block"
    assert "from index 4 on" in issue.message


def test_block_fault_hidden_by_the_given_size_is_found_at_other_sizes(check, function, normal):
    op = scaled_rows(function, lambda rows: rows[: len(rows) // 4 * 4].sum(0))

    for reference in (None, torch.mul):
        (issue,) = check(op, [normal(8, 3), normal(3, seed=1)], reference=reference).failures
        assert issue.rule == "CHK201"
        assert "67" in issue.evidence["setting"]


def test_fault_for_negative_values_is_found_from_positive_inputs(faults, square):
    inputs = [torch.rand(6, dtype=torch.float64).add(0.5).requires_grad_()]
    op = square(lambda x, g: g * 2 * x.abs())

    assert faults(op, inputs) == {"CHK201"}
    assert faults(op, inputs, reference=torch.square) == {"CHK201"}
    assert faults(op, inputs, level="first-order") == set()


def test_nan_at_zero_is_found_for_a_smooth_function(faults, square, normal):
    op = square(lambda x, g: g * 2 * x * x / x)

    assert faults(op, [normal(6)]) == {"CHK201"}


@pytest.mark.parametrize(("error", "expected"), [(1e-8, {"CHK201"}), (1e-10, set())])
def test_gradient_limit_against_a_reference_is_1e_9(faults, square, normal, error, expected):
    op = square(lambda x, g: g * 2 * x * (1 + error))

    assert faults(op, [normal(5)], reference=torch.square, level="first-order") == expected


def test_constant_of_float32_precision_is_found_without_a_reference(check, function, normal):
    third = float(torch.tensor(1 / 3, dtype=torch.float32))
    op = function(lambda ctx, x: x / 3, lambda ctx, g: g * third)

    (issue,) = check(op, [normal(5)], level="first-order").failures

    assert issue.rule == "CHK201"


def test_missing_gradient_with_and_without_a_reference(check, function, normal):
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    op = function(forward, lambda ctx, g: (g * ctx.saved_tensors[1], None))

    for reference in (None, torch.mul):
        (issue,) = check(op, [normal(4), normal(4, seed=1)], reference=reference).failures
        assert (issue.rule, issue.where.parameter) == ("CHK202", "w")


def test_none_for_an_independent_input_is_no_fault(faults, function, normal):
    op = function(lambda ctx, x, unused: x * 3, lambda ctx, g: (g * 3, None))

    assert faults(op, [normal(4), normal(2, seed=1)]) == set()


def test_none_for_unmarked_inputs_is_no_fault(faults, function, normal):
    def forward(ctx, x, target):
        ctx.save_for_backward(x, target)
        return (x - target) ** 2

    def backward(ctx, g):
        x, target = ctx.saved_tensors
        return 2 * g * (x - target), None

    unmarked = [normal(4, requires_grad=False), normal(4, seed=1, requires_grad=False)]

    assert faults(function(forward, backward), unmarked) == set()


def test_detached_output_is_a_missing_gradient(faults, normal):
    assert faults(lambda x: x.detach() * 2, [normal(4)]) == {"CHK202"}
    assert faults(torch.round, [normal(4)]) == set()


@pytest.mark.parametrize(("error", "expected"), [(1e-8, {"CHK101"}), (1e-10, set())])
def test_forward_limit_is_1e_9(faults, normal, error, expected):
    def candidate(x):
        return x.sin() + error * torch.ones_like(x) * x.detach().sin().abs().max()

    options = {"reference": torch.sin, "level": "first-order"}
    assert faults(candidate, [normal(5)], **options) == expected


def test_ill_conditioned_algorithms_may_differ(faults):
    matrix = (torch.eye(3, dtype=torch.float64) + 1 - 1e-6).requires_grad_()

    def by_solve(a):
        return torch.linalg.solve(a, torch.eye(3, dtype=a.dtype))

    assert faults(by_solve, [matrix], reference=torch.linalg.inv) == set()


def test_structure_is_compared_with_the_reference(check, normal):
    (issue,) = check(
        lambda x: x.sum(-1, keepdim=True), [normal(3, 4)], reference=lambda x: x.sum(-1)
    ).failures
    assert (issue.rule, issue.evidence["got"]) == ("CHK103", "[3, 1]")

    (issue,) = check(lambda x: (x, x), [normal(3)], reference=lambda x: x).failures
    assert issue.rule == "CHK103"


@pytest.mark.parametrize("returned", [None, "text", 3])
def test_output_without_a_tensor_is_reported(faults, normal, returned):
    assert faults(lambda x: returned, [normal(3)]) == {"CHK103"}


def test_exception_is_reported_with_its_stage(check, square, normal):
    def forward(x):
        raise ValueError("unsupported size 3")

    def backward(x, g):
        raise IndexError("saved tensor 1")

    (issue,) = check(forward, [normal(3)]).failures
    assert issue.rule == "CHK102" and "unsupported size 3" in issue.message

    (issue,) = check(square(backward), [normal(3)]).failures
    assert issue.evidence["stage"] == "backward"


def test_exception_of_both_is_a_note(check, normal):
    def refuse(x):
        raise ValueError("no")

    result = check(refuse, [normal(3)], reference=refuse)

    assert result.passed
    assert [issue.rule for issue in result.issues] == ["CHK902"]


def test_reference_defines_the_truth_of_a_surrogate(faults, function, normal):
    straight_through = function(lambda ctx, x: x.round(), lambda ctx, g: g)

    def honest(x):
        return x + (x.round() - x).detach()

    assert faults(straight_through, [normal(5)], reference=honest) == set()
    assert faults(straight_through, [normal(5)], level="first-order") == {"CHK201"}


def test_constant_function_with_rounding_noise_passes(faults, normal):
    def cancels(x):
        return ((x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)).sum(-1)

    for seed in range(4):
        assert faults(cancels, [normal(3, 5)], seed=seed) == set()


def test_domain_of_the_operator_is_respected(faults):
    def strict(x):
        if bool((x <= 0).any()):
            raise ValueError("x must be positive")
        return x.log()

    x = torch.tensor([1e-7, 0.5, 2.0], dtype=torch.float64, requires_grad=True)

    assert faults(strict, [x]) == set()
    assert faults(strict, [x], reference=torch.log) == set()


def test_numerical_derivative_beside_a_reference_only_on_demand(faults, function, normal):
    straight_through = function(lambda ctx, x: x.round(), lambda ctx, g: g)

    def honest(x):
        return x + (x.round() - x).detach()

    options = {"reference": honest, "check_finite_difference": True, "level": "first-order"}
    assert faults(straight_through, [normal(5)], **options) == {"CHK205"}
    assert (
        faults(torch.sin, [normal(5)], reference=torch.sin, check_finite_difference=True) == set()
    )


def test_integer_outputs_and_data_inputs_are_left_alone(faults, normal):
    index = torch.tensor([2, 0])

    assert faults(lambda x, i: (x[i], x.argmax()), [normal(3), index]) == set()
    data = normal(3, seed=2, requires_grad=False)
    assert faults(lambda x, d: x * d.round(), [normal(3), data]) == set()


def test_nothing_differentiable_is_said(check):
    result = check(lambda i: i + 1, [torch.arange(3)])

    assert result.passed
    assert result.issues[0].rule == "CHK902"


@pytest.mark.parametrize("seed", range(5))
def test_factor_two_is_found_at_every_size(faults, square, seed):
    for count in (16, 1024, 16_384):
        x = torch.randn(count, dtype=torch.float64, requires_grad=True)
        op = square(lambda x, g: g * 4 * x)
        assert faults(op, [x], level="first-order", seed=seed) == {"CHK201"}


def test_complex_operators_are_judged(faults, function):
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    right = function(forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0].conj())
    wrong = function(forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0])

    assert faults(right, [z]) == set()
    assert faults(wrong, [z], level="first-order") == {"CHK201"}
    assert faults(lambda x: (x * x.conj()).real, [z]) == set()


def test_scalar_and_empty_inputs_are_checked(faults, square):
    scalar = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    empty = torch.zeros(0, 3, dtype=torch.float64, requires_grad=True)

    assert faults(square(lambda x, g: g * 2 * x), [scalar]) == set()
    assert faults(square(lambda x, g: g * x), [scalar], level="first-order") == {"CHK201"}
    assert faults(square(lambda x, g: g * 2 * x), [empty]) == set()


def test_float32_inputs_are_judged_in_float64(faults, square, normal):
    x = normal(10, dtype=torch.float32)

    assert faults(F.softplus, [x]) == set()
    assert faults(square(lambda x, g: g * 2.001 * x), [x], level="first-order") == {"CHK201"}


def test_operator_that_refuses_float64_is_judged_more_coarsely(faults, function, normal):
    def forward(ctx, x):
        if x.dtype is not torch.float32:
            raise TypeError("float32 only")
        ctx.save_for_backward(x)
        return x * x

    right = function(forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0])
    wrong = function(forward, lambda ctx, g: g * 4 * ctx.saved_tensors[0])
    x = normal(10, dtype=torch.float32)

    assert faults(right, [x]) == set()
    assert faults(wrong, [x], level="first-order") == {"CHK201"}


def test_limits_are_finite_numbers(check, square, normal):
    (issue,) = check(square(lambda x, g: g * x), [normal(3)]).failures

    error = issue.evidence["error"]
    assert math.isfinite(error.limit) and error.value > error.limit
