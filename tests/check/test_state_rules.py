"""CHK221-224, CHK231-233: repetition, random generators and memory."""

import random

import numpy as np
import pytest
import torch

from nabla_check.inputs.rng import EXTREME_SEEDS


def test_forward_that_drifts_is_found(faults, normal):
    calls = []

    def candidate(x):
        calls.append(1)
        return x * (1 + 1e-12 * len(calls))

    assert "CHK221" in faults(candidate, [normal(4)], level="first-order")


@pytest.mark.parametrize("size", [1e-3, 1e-12])
def test_noisy_backward_is_found(faults, square, normal, size):
    op = square(lambda x, g: g * 2 * x * (1 + size * torch.randn_like(x)))

    assert "CHK222" in faults(op, [normal(4)], level="first-order")


def test_shared_workspace_is_a_leak_of_state(faults, function, normal):
    workspace = {}

    def forward(ctx, x):
        workspace["x"] = x.detach().clone()
        return x * x

    op = function(forward, lambda ctx, g: g * 2 * workspace["x"])

    assert "CHK223" in faults(op, [normal(4)], level="first-order")


def test_gradient_in_a_shared_buffer_is_a_leak_of_state(faults, square, normal):
    buffer = torch.zeros(4, dtype=torch.float64)

    def backward(x, g):
        if x.dtype is torch.float64 and x.shape == buffer.shape:
            return torch.mul(g * 2, x, out=buffer.requires_grad_(False))
        return g * 2 * x

    assert "CHK223" in faults(square(backward), [normal(4)], level="first-order")


def test_output_in_a_shared_buffer_is_a_leak_of_state(faults, function, normal):
    buffer = torch.zeros(4, dtype=torch.float64)

    def forward(ctx, x):
        ctx.save_for_backward(x)
        buffer.copy_(x * x)
        return buffer.view(4)

    op = function(forward, lambda ctx, g: g * 2 * ctx.saved_tensors[0])

    assert faults(op, [normal(4)], level="first-order")


def reseeds(generator):
    def candidate(x):
        generator()
        return x * 2

    return candidate


@pytest.mark.parametrize(
    "generator",
    [
        lambda: torch.manual_seed(0),
        lambda: random.seed(0),
        lambda: np.random.seed(0),
        lambda: torch.rand(3),
        lambda: random.random(),
    ],
)
def test_disturbed_generators_are_found(faults, normal, generator):
    assert faults(reseeds(generator), [normal(4)], level="first-order") == {"CHK224"}


def test_backward_that_reseeds_is_found(faults, square, normal):
    def backward(x, g):
        torch.manual_seed(0)
        return g * 2 * x

    assert faults(square(backward), [normal(4)], level="first-order") == {"CHK224"}


def dropout(x):
    mask = torch.rand(x.shape, dtype=x.dtype) < 0.7
    return x * mask / 0.7


@pytest.mark.parametrize("level", ["first-order", "full"])
def test_stochastic_operators_pass(faults, normal, level):
    assert faults(dropout, [normal(4, 5)], level=level) == set()
    assert faults(torch.nn.Dropout(0.5), [normal(4, 5)], level=level) == set()
    assert faults(lambda x: x + 0.1 * torch.randn_like(x) * x, [normal(6)], level=level) == set()


def test_stochastic_pair_is_compared_when_it_draws_alike(faults, check, normal):
    assert faults(dropout, [normal(4, 5)], reference=dropout, level="first-order") == set()
    assert faults(
        lambda x: dropout(x) * 1.1, [normal(4, 5)], reference=dropout, level="first-order"
    ) >= {"CHK101"}
    other = check(lambda x: (torch.rand(2), dropout(x))[1], [normal(4)], reference=dropout)
    assert other.passed and any("random" in issue.message for issue in other.issues)


def test_mask_drawn_again_in_the_backward_is_found(faults, function, normal):
    def forward(ctx, x):
        return x * (torch.rand(x.shape, dtype=x.dtype) < 0.5)

    op = function(forward, lambda ctx, g: g * (torch.rand(g.shape, dtype=g.dtype) < 0.5))

    assert faults(op, [normal(40)], level="first-order") & {"CHK201", "CHK222"}


def test_private_generator_among_the_arguments_is_rewound(faults, normal):
    def candidate(x, generator):
        return x * torch.rand(x.shape, dtype=x.dtype, generator=generator)

    assert faults(candidate, [normal(4), torch.Generator().manual_seed(3)]) == set()


def test_generators_are_left_as_they_were(check, normal):
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    expected = (torch.rand(2).tolist(), random.random(), np.random.rand())
    torch.manual_seed(5), random.seed(5), np.random.seed(5)

    def candidate(x):
        return x * torch.rand(4, dtype=x.dtype) * random.random() * np.random.rand()

    check(candidate, [normal(4)])

    assert (torch.rand(2).tolist(), random.random(), np.random.rand()) == expected


def test_module_is_left_as_it_was(check, normal):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).double()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    result = check(model, [normal(5, 3)])

    assert result.passed
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_written_input_is_found(check, function, normal):
    def forward(ctx, x):
        x.data.add_(0.25)
        return x * 2

    (issue,) = check(
        function(forward, lambda ctx, g: g * 2), [normal(4)], level="first-order"
    ).failures

    assert (issue.rule, issue.where.parameter) == ("CHK231", "x")


def test_written_data_input_is_found(faults, normal):
    def candidate(x, data):
        data.clamp_(0)
        return x * data

    data = normal(4, seed=3, requires_grad=False)
    kept = data.clone()

    assert faults(candidate, [normal(4), data], level="first-order") == {"CHK231"}
    assert torch.equal(data, kept)


def test_announced_in_place_work_is_no_fault(faults, normal):
    assert faults(lambda x: x.mul_(2), [normal(4)], level="first-order") == set()


def test_written_cotangent_is_found(faults, square, normal):
    def backward(x, g):
        out = g * 2 * x
        g.data.mul_(0.5)
        return out

    assert faults(square(backward), [normal(4)], level="first-order") == {"CHK232"}


def test_backward_that_overwrites_what_another_node_kept_is_found(check, function, normal):
    def keep(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    def gate(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * torch.sigmoid(b)

    def overwrite(ctx, g):
        a, b = ctx.saved_tensors
        s = torch.sigmoid(b)
        da, db = g * s, g * a * s * (1 - s)
        a.data.copy_(da)
        return a, db

    def polite(ctx, g):
        a, b = ctx.saved_tensors
        s = torch.sigmoid(b)
        return g * s, g * a * s * (1 - s)

    first = function(keep, lambda ctx, g: g * ctx.saved_tensors[0])
    inputs = [normal(4, 3), normal(4, 3, seed=1)]
    for backward, expected in ((overwrite, {"CHK233"}), (polite, set())):
        second = function(gate, backward)
        result = check(lambda x, w, second=second: second(first(x), w), inputs)
        assert {issue.rule for issue in result.failures} == expected


def test_output_kept_on_ctx_and_changed_later_is_found(check, normal):
    class KeepOut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.out = x.exp()
            return ctx.out

        @staticmethod
        def backward(ctx, g):
            return g * ctx.out

    def candidate(x):
        h = KeepOut.apply(x)
        h += 1.0
        return torch.log(h)

    for reference in (None, torch.nn.functional.softplus):
        (issue,) = check(candidate, [normal(6)], reference=reference).failures
        assert issue.rule == "CHK233"
        assert "ctx.out" in issue.message and "add_" in issue.message


def test_output_kept_on_ctx_is_found_on_the_bare_operator(faults, function, normal):
    def careless(ctx, x):
        ctx.out = x.exp()
        return ctx.out

    def careful(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    wrong = function(careless, lambda ctx, g: g * ctx.out)
    right = function(careful, lambda ctx, g: g * ctx.saved_tensors[0])

    assert "CHK233" in faults(wrong, [normal(4)], check_double_backward=False)
    assert faults(right, [normal(4)]) == set()


def test_graph_that_survives_one_backward_only_is_a_note(check, function, normal):
    def forward(ctx, x):
        ctx.kept = [x.detach().clone()]
        return x * x

    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * 2 * ctx.kept.pop()

    result = check(function(forward, backward), [normal(4)])

    assert result.passed, result.format()
    assert any("repeated backward" in issue.message for issue in result.issues)


def test_rare_random_branch_is_no_needless_draw(faults, normal):
    def stochastic_depth(x):
        return x + (x.sin() if random.random() < 0.999 else 0)

    def rarely_dropped(x):
        return x * float(torch.rand(1) > 1e-3)

    assert faults(stochastic_depth, [normal(4)], level="first-order") == set()
    assert faults(rarely_dropped, [normal(4)], level="first-order") == set()


def test_the_extreme_seeds_are_extreme():
    python = [random.Random(seed).random() for seed in EXTREME_SEEDS[:2]]
    numpy = [np.random.RandomState(seed).random_sample() for seed in EXTREME_SEEDS[2:4]]
    torch32, torch64 = (
        [
            torch.rand(1, generator=torch.Generator().manual_seed(seed), dtype=dtype).item()
            for seed in seeds
        ]
        for dtype, seeds in (
            (torch.float32, EXTREME_SEEDS[4:6]),
            (torch.float64, EXTREME_SEEDS[6:]),
        )
    )

    for low, high in (python, numpy, torch32, torch64):
        assert low < 1e-4 and high > 1 - 1e-4


def test_state_on_the_class_is_a_leak_and_not_called_a_write(faults, function, normal):
    last = []

    def forward(ctx, x):
        last[:] = [x.detach()]
        return x**3

    assert faults(function(forward, lambda ctx, g: 3 * g * last[0] ** 2), [normal(5)]) == {"CHK223"}
