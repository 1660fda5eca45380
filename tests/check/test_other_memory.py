"""The same values handed over differently: channels last, repeated rows, one tensor twice."""

import pytest
import torch


def _is_channels_last(tensor):
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return last and not tensor.is_contiguous()


@pytest.mark.parametrize("faulty", [False, True])
def test_a_channels_last_input_is_tried(faults, function, normal, faulty):
    def forward(ctx, x):
        axes = (1, 2) if faulty and _is_channels_last(x) else (2, 3)
        return x - x.mean(axes, keepdim=True)

    centre = function(forward, lambda ctx, g: g - g.mean((2, 3), keepdim=True))

    assert faults(centre, [normal(2, 3, 4, 5)]) == ({"CHK213"} if faulty else set())


@pytest.mark.parametrize("reference", [None, lambda x: 3 * x])
def test_a_channels_last_cotangent_is_tried(check, function, normal, reference):
    def backward(ctx, g):
        rows = g.permute(0, 2, 3, 1).reshape(g.shape) if _is_channels_last(g) else g
        return 3 * rows

    triple = function(lambda ctx, x: 3 * x, backward)

    (found,) = check(triple, [normal(2, 3, 4, 5)], reference=reference).failures

    assert found.rule == "CHK212"
    assert found.evidence["layout"] == "channels_last"


def test_a_shortcut_for_the_cotangent_of_a_sum_is_found(faults, square, normal):
    def backward(x, g):
        shortcut = g.numel() > 1 and all(step == 0 for step in g.stride())
        return 2 * x * (torch.ones_like(g) if shortcut else g)

    assert faults(square(backward), [normal(5, 3)]) == {"CHK212"}


@pytest.mark.parametrize("faulty", [False, True])
def test_rows_of_stride_0_are_tried(faults, function, normal, faulty):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x).sum(0)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        once = faulty and x.shape[0] > 1 and x.stride(0) == 0
        return (2 / x.shape[0] if once else 2) * g * x

    assert faults(function(forward, backward), [normal(6, 5)]) == ({"CHK213"} if faulty else set())


def test_another_choice_among_equal_rows_is_no_fault(faults, function, normal):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.amax(0)

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        order = reversed(range(len(x))) if x.stride(0) == 0 else range(len(x))
        winner = torch.zeros_like(x)
        for row in order:
            winner[row] = (x[row] == x.amax(0)) & ~winner.bool().any(0)
        return winner * g

    assert faults(function(forward, backward), [normal(4, 3)]) == set()


def _product(both):
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        ctx.same = a.data_ptr() == b.data_ptr()
        return a * b.exp()

    def backward(ctx, g):
        a, b = ctx.saved_tensors
        whole = g * (b.exp() + a * b.exp())
        return (whole, whole) if ctx.same and both else (g * b.exp(), g * a * b.exp())

    return forward, backward


@pytest.mark.parametrize(("both", "expected"), [(True, {"CHK213"}), (False, set())])
def test_one_tensor_given_for_two_inputs_gets_both_gradients(
    faults, function, normal, both, expected
):
    assert faults(function(*_product(both)), [normal(6), normal(6, seed=1)]) == expected


def test_gradients_that_cancel_for_one_tensor_given_twice_are_right(faults, function, normal):
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a / b

    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g / b, -g * a / b / b

    assert faults(function(forward, backward), [normal(6), normal(6, seed=1)]) == set()
