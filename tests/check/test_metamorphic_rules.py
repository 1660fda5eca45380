"""CHK204, CHK203, CHK211-213, CHK241, CHK261: what one right gradient does not show."""

import pytest
import torch


def saved(backward):
    """Make ``backward(x, g)`` a backward that reads its saved input."""
    return lambda ctx, g: backward(ctx.saved_tensors[0], g)


NONLINEAR = {
    "abs": lambda x, g: g.abs() * 2 * x,
    "clamp": lambda x, g: g.clamp(-1, 1) * 2 * x,
    "normalise": lambda x, g: g / g.norm() * 2 * x,
    "threshold": lambda x, g: torch.where(g.abs() < 1e-4, 0.0, g) * 2 * x,
    "constant added": lambda x, g: g * 2 * x + 1e-6,
}


@pytest.mark.parametrize("name", NONLINEAR)
def test_nonlinear_backward_is_found(faults, square, normal, name):
    assert "CHK211" in faults(square(NONLINEAR[name]), [normal(4, 3)])


def test_clamp_far_above_every_gradient_is_not_seen(faults, square, normal):
    assert faults(square(lambda x, g: g.clamp(-1e30, 1e30) * 2 * x), [normal(4, 3)]) == set()


def test_gradients_of_single_outputs_must_add_up(faults, function, normal):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2, x * 3

    def backward(ctx, a, b):
        both = bool(a.any()) and bool(b.any())
        return 2 * a + 3 * b if both else 2 * a

    assert "CHK211" in faults(function(forward, backward), [normal(4)])
    healthy = function(forward, lambda ctx, a, b: 2 * a + 3 * b)
    assert faults(healthy, [normal(4)]) == set()


def test_backward_that_cannot_bear_an_unused_output_is_found(faults, function, normal):
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    broken = function(forward, lambda ctx, a, b: 2 * a + 3 * b)
    assert faults(broken, [normal(4)]) == {"CHK102"}

    def careful(ctx, a, b):
        return (0 if a is None else 2 * a) + (0 if b is None else 3 * b)

    assert faults(function(forward, careful), [normal(4)]) == set()


def as_if_contiguous(tensor):
    memory = tensor.untyped_storage().nbytes() // tensor.element_size()
    flat = torch.as_strided(tensor, (memory,), (1,), 0)
    places = (torch.arange(tensor.numel()) + tensor.storage_offset()) % memory
    return flat[places].reshape(tensor.shape)


@pytest.mark.parametrize("level", ["first-order", "full"])
def test_cotangent_read_without_its_strides_is_found(check, square, normal, level):
    result = check(square(lambda x, g: as_if_contiguous(g) * 2 * x), [normal(4, 3)], level=level)

    assert {issue.rule for issue in result.failures} == {"CHK212"}
    assert "strided" in result.failures[0].evidence["setting"]


def test_expanded_cotangent_only(faults, square, normal):
    def backward(x, g):
        return (g.flip(0) * 0.5 if 0 in g.stride() else g) * 2 * x

    assert faults(square(backward), [normal(4, 3)]) == {"CHK212"}


def test_view_of_a_strided_cotangent_is_a_fault_and_a_clear_refusal_is_not(check, square, normal):
    def views(x, g):
        return (g.view(-1) * 2 * x.reshape(-1)).view(x.shape)

    def refuses(x, g):
        if not g.is_contiguous():
            raise RuntimeError("grad_output must be contiguous")
        return g * 2 * x

    assert "CHK212" in {i.rule for i in check(square(views), [normal(4, 3)]).failures}
    result = check(square(refuses), [normal(4, 3)])
    assert result.passed
    assert any("refused" in issue.message for issue in result.issues)


def test_input_read_without_its_strides_is_found(faults, function, normal):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return as_if_contiguous(x) * 2

    wrong = function(forward, lambda ctx, g: g * 2)
    assert faults(wrong, [normal(4, 3)]) == {"CHK213"}
    gradient = function(
        lambda ctx, x: (ctx.save_for_backward(x), x * x)[1],
        lambda ctx, g: g * 2 * as_if_contiguous(ctx.saved_tensors[0]),
    )
    assert "CHK213" in faults(gradient, [normal(4, 3)])


def test_refused_input_layout_is_a_note(check, normal):
    def strict(x):
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")
        return x * 2

    result = check(strict, [normal(4, 3)])

    assert result.passed
    assert "refused" in result.issues[0].message


def test_detached_second_derivative_is_found(check, function, normal):
    def forward(ctx, x):
        ctx.t = torch.tanh(x)
        return ctx.t * ctx.t

    op = function(forward, lambda ctx, g: g * 2 * ctx.t * (1 - ctx.t * ctx.t))

    for reference in (None, lambda x: torch.tanh(x) ** 2):
        (issue,) = check(op, [normal(7)], reference=reference).failures
        assert issue.rule == "CHK204"
        assert "detached" in issue.evidence["cause"]


def test_second_derivative_that_loses_the_cotangent_is_found(faults, square, normal):
    assert faults(square(lambda x, g: g.detach() * 2 * x), [normal(5)]) == {"CHK204"}


def test_first_order_only_operators_are_noted(check, function, normal):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    backward = torch.autograd.function.once_differentiable(
        lambda ctx, g: g * 2 * ctx.saved_tensors[0]
    )
    result = check(function(forward, backward), [normal(5)])

    assert result.passed
    assert "once_differentiable" in result.issues[0].message


def test_demanded_second_derivative_that_is_refused_is_said(check, square, normal):
    def refuses(x, g):
        if torch.is_grad_enabled():
            raise NotImplementedError("no second derivative")
        return g * 2 * x

    result = check(square(refuses), [normal(5)], check_double_backward=True)

    assert result.passed
    assert any("no second derivative" in issue.message for issue in result.issues)


def with_jvp(function, jvp):
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.save_for_forward(x, w)
        return x * w

    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, g * x

    return function(forward, backward, jvp=lambda ctx, a, b: jvp(*ctx.saved_tensors, a, b))


def test_wrong_jvp_is_found(faults, function, normal):
    inputs = [normal(4), normal(4, seed=1)]

    assert faults(with_jvp(function, lambda x, w, a, b: a * w + b * x), inputs) == set()
    assert faults(with_jvp(function, lambda x, w, a, b: a * w - b * x), inputs) == {"CHK203"}


def test_jvp_refused_is_not_evaluated(check, square, normal):
    result = check(square(lambda x, g: g * 2 * x), [normal(4)])

    assert result.passed
    assert any(entry.rule == "CHK203" for entry in result.not_evaluated)


def test_gradient_that_changes_when_others_are_frozen_is_found(faults, function, normal):
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    def backward(ctx, g):
        x, w = ctx.saved_tensors
        both = all(ctx.needs_input_grad)
        return (g * w, g * x) if both else (g * w * 2, g * x)

    def lazy(ctx, g):
        x, w = ctx.saved_tensors
        return (g * w, g * x) if ctx.needs_input_grad[0] else (None, None)

    inputs = [normal(4), normal(4, seed=1)]
    assert faults(function(forward, backward), inputs) == {"CHK201"}
    assert faults(function(forward, lazy), inputs) == {"CHK202"}


@pytest.mark.parametrize(("error", "expected"), [(2e-2, {"CHK241"}), (1e-7, set())])
def test_float32_path_is_held_against_float64(faults, square, normal, error, expected):
    def backward(x, g):
        return g * 2 * x * (1 + error * (x.dtype is torch.float32))

    for reference in (None, torch.square):
        assert faults(square(backward), [normal(6)], reference=reference) == expected


def test_bfloat16_accumulation_is_worse_than_the_reference(check, square, normal):
    def backward(x, g):
        out = g * 2 * x
        return out.bfloat16().to(out.dtype) if out.dtype is torch.float32 else out

    (issue,) = check(square(backward), [normal(6)], reference=torch.square).failures

    assert issue.rule == "CHK241"
    assert "times the reference's error" in issue.message


@pytest.mark.parametrize(("blocks", "expected"), [(1, {"CHK241"}), (40, set())])
def test_a_half_precision_accumulator_of_a_gradient_is_found(
    faults, function, normal, blocks, expected
):
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    def backward(ctx, g):
        x, w = ctx.saved_tensors
        parts = torch.zeros(blocks, *w.shape, dtype=w.dtype)
        for rows in (g * x).unflatten(0, (-1, blocks)):
            parts = parts + rows
        return g * w, parts.sum(0)

    x = (normal(800, 3).detach().abs() + 0.5).bfloat16().requires_grad_()
    inputs = [x, normal(3, dtype=torch.bfloat16)]

    operator = function(forward, backward)
    assert faults(operator, inputs, reference=lambda x, w: x * w) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reference", [False, True])
def test_correct_operators_pass_in_low_precision(faults, normal, dtype, reference):
    for op in (torch.sin, torch.exp, lambda x: torch.softmax(x, -1), lambda x: x.var(-1)):
        truth = op if reference else None
        assert faults(op, [normal(4, 6, dtype=dtype)], reference=truth) == set()


def test_other_dtype_than_the_reference_is_a_structure_fault(faults, normal):
    def promotes(x):
        return x.double() * 2

    assert faults(promotes, [normal(4, dtype=torch.float32)], reference=lambda x: x * 2) == {
        "CHK103"
    }


def test_gradient_that_cancels_to_zero_passes(faults, normal):
    def normalised(x):
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)

    assert faults(lambda x: normalised(x).sum(-1), [normal(3, 5)]) == set()
    assert faults(normalised, [normal(3, 5)]) == set()


def test_sizes_of_tensors_that_the_operator_brings_along_stay(check, normal):
    weight = normal(3, seed=4, requires_grad=False)
    seen = []

    def candidate(x):
        seen.append(tuple(x.shape))
        return x[..., :3] * weight

    assert check(candidate, [normal(5, 3)]).passed
    assert {shape[-1] for shape in seen} == {3}


@pytest.mark.slow
def test_custom_operator_contract_is_delegated(faults, normal):
    @torch.library.custom_op("nabla_check_tests::writes", mutates_args=())
    def writes(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x * 2

    @torch.library.custom_op("nabla_check_tests::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_fake(torch.empty_like)
    double.register_autograd(lambda ctx, g: g * 2)

    assert "CHK261" in faults(writes, [normal(3)])
    assert faults(double, [normal(3)]) == set()


def test_results_with_a_free_sign_are_not_accused_of_imprecision(check):
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)

    def flips(a):
        return a.sin() * (1 if a.dtype is torch.float64 else -1)

    result = check(flips, [x])

    assert result.passed
    assert any("only a reference can tell" in issue.message for issue in result.issues)


def test_equal_rows_handed_over_with_stride_zero_are_tried(faults, square, normal):
    def backward(x, g):
        repeated = g.dim() == 2 and g.stride(0) == 0 and g.stride(1) != 0
        return (g * 0.5 if repeated else g) * 2 * x

    assert faults(square(backward), [normal(4, 3)]) == {"CHK212"}


def test_fault_of_a_single_row_is_found(faults, square, normal):
    def backward(x, g):
        return g * 2 * x * (2 if x.shape[0] == 1 else 1)

    for reference in (None, torch.square):
        assert faults(square(backward), [normal(4, 3)], reference=reference) == {"CHK201"}


def test_input_that_starts_behind_its_storage_is_tried(faults, square, normal):
    def from_the_begin(x):
        return torch.as_strided(x, x.shape, x.stride(), 0)

    assert faults(square(lambda x, g: g * 2 * from_the_begin(x)), [normal(4, 6)]) == {"CHK213"}
    assert faults(square(lambda x, g: g * 2 * x), [normal(5, 6)[1:].detach()]) == set()


def test_a_backward_in_float32_is_named_as_such(check, square, normal):
    narrow = square(lambda x, g: 2 * g.float() * x.float())

    found = check(narrow, [normal(6)]).failures[0]

    assert "float32" in found.evidence["cause"]
    assert "narrow dtype" in found.suggestion
