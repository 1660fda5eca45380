"""``fuzz``: exact minima of faulty operators, silence on healthy ones, honest accounts."""

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F

import nabla_check.fuzzing.campaign
from nabla_check.fuzzing.fuzz_operator import fuzz
from nabla_check.fuzzing.properties import equivalent
from nabla_check.fuzzing.properties import property as law
from nabla_check.inputs.specs import shapes, tensor
from nabla_core.allowance import allow
from nabla_core.errors import UsageError

LAYOUTS = ["contiguous", "transposed", "strided", "sliced", "expanded"]
LOW = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
LANDMARKS = (1, 2, 3, 7, 8, 16, 17, 33, 64)


@pytest.fixture
def tail(function):
    """x² whose gradient is lost behind element ``n``."""

    def make(n):
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            out = 2 * x * g
            if x.dim() and x.shape[-1] > n:
                out = out.clone()
                out[..., n:] = 0
            return out

        return function(forward, backward)

    return make


@pytest.fixture
def product(function):
    """Matrix product whose left gradient is lost behind the last whole block of 8."""

    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    def backward(ctx, g):
        a, b = ctx.saved_tensors
        left, whole = g @ b.T, a.shape[1] // 8 * 8
        if a.shape[1] > 8 and whole < a.shape[1]:
            left = left.clone()
            left[:, whole:] = 0
        return left, a.T @ g

    return function(forward, backward)


@pytest.mark.parametrize("threshold", [5, 16, 20, 47])
def test_a_size_limit_is_found_exactly(tail, threshold):
    for seed in range(10):
        result = fuzz(
            candidate=tail(threshold),
            reference=torch.square,
            inputs=[tensor(shapes("n"), dtype=[torch.float64, torch.float32], layout=LAYOUTS)],
            seed=seed,
        )

        assert result.minimum.shapes == ((threshold + 1,),)
        assert result.trials + result.shrink_calls <= 60
        assert {issue.rule for issue in result.failures} == {"CHK201"}


def test_a_shared_size_is_found_exactly(product):
    for seed in range(10):
        result = fuzz(
            candidate=product,
            reference=torch.matmul,
            inputs=[tensor(shapes("m k")), tensor(shapes("k n"))],
            seed=seed,
        )

        assert result.minimum.shapes == ((1, 9), (9, 1))
        assert result.trials + result.shrink_calls <= 60


def test_a_size_limit_is_found_without_a_reference(tail):
    result = fuzz(candidate=tail(16), inputs=[tensor(shapes("n"))])

    assert result.minimum.shapes == ((17,),)
    assert result.failures[0].rule == "CHK201"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda x: not x.is_contiguous(), {"CHK213"}),
        (lambda x: x.dtype is torch.float32, {"CHK201", "CHK241"}),
        (lambda x: bool((x == 0).any()), {"CHK201"}),
    ],
    ids=["layout", "dtype", "zero"],
)
def test_the_setting_that_matters_is_named(square, condition, expected):
    def backward(x, g):
        return (
            g
            * 2
            * x
            * (float("nan") if (x == 0).any() and condition(x) else 1)
            * (1.01 if condition(x) else 1)
        )

    result = fuzz(
        candidate=square(backward),
        reference=torch.square,
        inputs=[tensor(shapes("n"), dtype=[torch.float64, torch.float32], layout=LAYOUTS)],
    )

    assert {issue.rule for issue in result.failures} & expected
    assert condition(result.minimum.build()[0])


def test_a_strided_incoming_gradient_is_tried(square):
    op = square(lambda x, g: 2 * x * g if g.is_contiguous() else 3 * x * g)
    result = fuzz(candidate=op, reference=torch.square, inputs=[tensor(shapes("n"))])

    assert {issue.rule for issue in result.failures} == {"CHK212"}


HEALTHY = {
    "softmax": (
        lambda x: (e := (x - x.amax(-1, keepdim=True)).exp()) / e.sum(-1, keepdim=True),
        lambda x: F.softmax(x, -1),
    ),
    "log_softmax": (
        lambda x: x - torch.logsumexp(x, -1, keepdim=True),
        lambda x: F.log_softmax(x, -1),
    ),
    "gelu": (lambda x: 0.5 * x * (1 + torch.erf(x * 0.7071067811865476)), F.gelu),
    "tanh": (lambda x: 2 * torch.sigmoid(2 * x) - 1, torch.tanh),
    "relu by maximum": (lambda x: torch.maximum(x, torch.zeros_like(x)), F.relu),
    "abs by where": (lambda x: torch.where(x >= 0, x, -x), torch.abs),
    "largest by sort": (lambda x: x.sort(-1).values[..., -1], lambda x: x.amax(-1)),
    "rms": (
        lambda x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6),
        lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6),
    ),
    "index of the largest": (
        lambda x: (x.argmax(-1), x + x),
        lambda x: (x.shape[-1] - 1 - x.flip(-1).argmax(-1), 2 * x),
    ),
    "other random numbers": (
        lambda x: x * torch.bernoulli(torch.full_like(x, 0.5)) * 2,
        lambda x: F.dropout(x, 0.5),
    ),
    "same random numbers": (lambda x: F.dropout(x, 0.5), lambda x: F.dropout(x, 0.5)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_correct_operator_is_accused_in_no_dtype(name):
    candidate, reference = HEALTHY[name]
    recipe = tensor(shapes(ranks=(1, 2), dimensions=LANDMARKS), dtype=LOW, layout=LAYOUTS)

    result = fuzz(candidate=candidate, reference=reference, inputs=[recipe], trials=80, seed=1)

    assert result.passed, result.format()


@pytest.mark.parametrize("reference", [torch.matmul, None])
def test_a_correct_product_passes(reference):
    def candidate(a, b):
        return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)

    dtypes = LOW if reference else [torch.float64]
    result = fuzz(
        candidate=candidate,
        reference=reference,
        inputs=[tensor(shapes(text), dtype=dtypes, layout=LAYOUTS) for text in ("m k", "k n")],
        trials=40,
    )

    assert result.passed, result.format()
    assert result.trials == 40


def test_sizes_that_the_reference_wants_are_learnt():
    result = fuzz(
        candidate=F.linear,
        reference=F.linear,
        inputs=[
            tensor(
                shape=shapes(ranks=(2,), dimensions=(7, 8, 16, 17, 32)),
                dtype=[torch.float64, torch.float32],
                layout=["contiguous", "strided", "transposed"],
            ),
            tensor(shape=(32, 16), dtype=torch.float64),
        ],
        trials=100,
    )

    assert result.passed
    assert result.trials == 100


def test_an_exception_is_a_fault_only_where_the_reference_works():
    def picky(x):
        if x.shape[-1] > 20:
            raise IndexError("too long")
        return x * x

    one = [tensor(shapes("n"))]
    result = fuzz(candidate=picky, reference=torch.square, inputs=one)

    assert result.failures[0].rule == "CHK102"
    assert result.minimum.shapes == ((21,),)
    assert fuzz(candidate=picky, reference=picky, inputs=one).passed


def test_a_clear_refusal_of_a_layout_is_counted_not_accused():
    def contiguous_only(x):
        if not x.is_contiguous():
            raise ValueError("give contiguous memory")
        return x * x

    result = fuzz(
        candidate=contiguous_only,
        reference=torch.square,
        inputs=[tensor(shapes("n"), layout=LAYOUTS)],
    )

    assert result.passed
    assert any("a layout is refused" in reason for reason in result.skipped)


def test_a_campaign_that_compares_nothing_says_so():
    def refuse(x):
        raise ValueError("never")

    result = fuzz(candidate=refuse, reference=refuse, inputs=[tensor(shapes("n"))], trials=5)

    assert result.trials == 0
    assert [issue.rule for issue in result.issues] == ["CHK902"]
    assert "nothing was compared" in result.format()


def test_structure_and_missing_gradients_are_found(square):
    def run(candidate):
        return fuzz(candidate=candidate, reference=torch.square, inputs=[tensor(shapes("n"))])

    assert run(lambda x: (x * x).sum(0, keepdim=True)).failures[0].rule == "CHK103"
    assert run(lambda x: (x * x).float()).failures[0].rule == "CHK103"
    assert run(square(lambda x, g: None)).failures[0].rule == "CHK202"
    assert run(lambda x: x * x + 1e-6).failures[0].rule == "CHK101"


def test_the_script_fails_in_a_fresh_process(tmp_path):
    result = fuzz(candidate=wrong_square, reference=torch.square, inputs=[tensor(shapes("n"))])
    path = tmp_path / "again.py"
    path.write_text(result.failures[0].reproduction.script)
    answer = subprocess.run([sys.executable, path], capture_output=True, text=True, cwd=tmp_path)

    assert answer.returncode == 1, answer.stderr
    assert "largest error" in answer.stdout


class WrongSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x


def wrong_square(x):
    return WrongSquare.apply(x)


def test_the_outcome_does_not_depend_on_the_executor(tail):
    options = {
        "candidate": tail(20),
        "reference": torch.square,
        "inputs": [tensor(shapes("n"), layout=LAYOUTS)],
        "seed": 2,
    }
    with ThreadPoolExecutor(1) as pool:
        there = fuzz(**options, executor=pool)

    assert there.minimum == fuzz(**options).minimum
    assert pool  # it is the caller's to shut down


def test_properties_are_tried_on_the_same_cases():
    positive = law("positive", lambda y: bool((y >= 0).all()))
    flip = equivalent("flip", lambda f, x: f(x.flip(-1)).flip(-1))
    recipe = [tensor(shapes("n"), dtype=LOW, layout=LAYOUTS)]

    assert fuzz(candidate=torch.square, inputs=recipe, properties=[positive, flip]).passed
    broken = fuzz(candidate=lambda x: x**3, inputs=recipe, properties=[positive])
    assert (broken.failures[0].rule, broken.minimum.shapes) == ("CHK251", ((1,),))
    shifted = fuzz(candidate=lambda x: x.cumsum(-1), inputs=recipe, properties=[flip])
    assert shifted.failures[0].rule == "CHK251"
    assert "left side output" in shifted.failures[0].message


def test_a_property_must_give_one_truth_value():
    with pytest.raises(UsageError, match="return one bool"):
        fuzz(
            candidate=torch.square,
            inputs=[tensor((3,))],
            properties=[law("vector", lambda y: y > 0)],
        )
    with pytest.raises(UsageError, match="must accept every input"):
        fuzz(
            candidate=torch.square,
            inputs=[tensor((3,))],
            properties=[law("raises", lambda y: y[9])],
        )


def test_global_state_is_left_alone():
    norm = torch.nn.BatchNorm1d(3, dtype=torch.float64)
    before = norm.running_mean.clone()
    torch.manual_seed(1)
    random.seed(1)
    expected = torch.rand(1), random.random()
    torch.manual_seed(1)
    random.seed(1)

    fuzz(candidate=norm, reference=norm, inputs=[tensor(shapes("m 3"))], trials=5)

    assert torch.equal(norm.running_mean, before)
    assert (torch.rand(1), random.random()) == expected


def test_an_allowed_rule_is_shown_and_does_not_fail(square):
    with allow("CHK201", reason="half a gradient is wanted"):
        result = fuzz(
            candidate=square(lambda x, g: g * x),
            reference=torch.square,
            inputs=[tensor(shapes("n"))],
        )

    assert result.passed
    assert result.allowed[0].reason == "half a gradient is wanted"
    assert "allowed CHK201" in result.format()


def test_the_text_is_short_and_the_result_is_json_safe(tail):
    import json

    result = fuzz(candidate=tail(16), reference=torch.square, inputs=[tensor(shapes("m n"))])
    text = result.format()

    assert len(text.splitlines()) <= 25
    assert "smallest failing case: x (1, 17) float64" in text
    json.dumps(result.to_dict(), allow_nan=False)
    with pytest.raises(AssertionError, match="CHK201"):
        result.raise_if_failed()


def test_the_budget_is_kept_and_told(monkeypatch):
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(nabla_check.fuzzing.campaign.time, "monotonic", lambda: next(clock))
    result = fuzz(
        candidate=torch.square, reference=torch.square, inputs=[tensor((3,))], budget_s=25.0
    )

    assert result.trials < 10
    assert "the budget of 25 s is spent" in result.issues[0].message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials=0"),
        ({"budget": 3}, "did you mean budget_s"),
        ({"budget_s": -1}, "above zero"),
        ({"properties": [len]}, "nabla.check.property"),
        ({"executor": 4}, "concurrent.futures"),
        ({"inputs": [torch.zeros(3)]}, "no recipe"),
        ({"inputs": 3}, "give a list"),
        ({"cotangent_layouts": ["diagonal"]}, "choose from"),
    ],
)
def test_wrong_use_is_explained(options, message):
    given = {"candidate": torch.square, "inputs": [tensor((3,))], **options}
    with pytest.raises(UsageError, match=message):
        fuzz(**given)


def test_an_input_layout_is_judged_without_a_reference():
    def ignores_strides(x):
        return torch.as_strided(x, x.shape, x.new_empty(x.shape).stride(), 0) * 2

    recipe = [tensor(shapes("m n"), layout=LAYOUTS)]

    assert fuzz(candidate=ignores_strides, inputs=recipe).failures[0].rule == "CHK213"
    assert fuzz(candidate=lambda x: x * 2, inputs=recipe).passed
    assert fuzz(candidate=F.dropout, inputs=recipe).passed


@pytest.mark.parametrize(
    "operator",
    [
        torch.abs,
        torch.frac,
        lambda x: x.amax(-1),
        lambda x: F.normalize(x, dim=-1),
        lambda x: x.clamp(-1, 1),
        lambda x: F.layer_norm(x, x.shape[-1:]),
    ],
)
def test_a_correct_operator_is_not_accused_by_differences(operator):
    recipe = tensor(
        shapes(ranks=(1, 2), dimensions=LANDMARKS),
        dtype=[torch.float64, torch.float32],
        layout=LAYOUTS,
    )
    result = fuzz(candidate=operator, inputs=[recipe], trials=60, seed=3)

    assert result.passed, result.format()


def test_an_input_that_is_written_to_is_named():
    def careless(x):
        y = x * 2
        x.data.add_(1)
        return y

    result = fuzz(candidate=careless, inputs=[tensor(shapes("n"))])

    assert "CHK231" in {issue.rule for issue in result.failures}
    assert fuzz(candidate=lambda x: x.clone().add_(1), inputs=[tensor(shapes("n"))]).passed


def test_a_wrong_reference_is_doubted(square):
    wrong = square(lambda x, g: g * x)
    result = fuzz(candidate=torch.square, reference=wrong, inputs=[tensor(shapes("n"))], trials=9)

    assert result.passed
    assert any("not with the reference" in reason for reason in result.skipped)


def test_the_backward_can_be_left_out(square):
    wrong = square(lambda x, g: g * x)
    recipe = [tensor(shapes("n"))]

    assert fuzz(
        candidate=wrong, reference=torch.square, inputs=recipe, trials=9, check_backward=False
    ).passed


def test_refusals_that_differ_only_in_sizes_are_one_reason():
    result = fuzz(
        candidate=torch.matmul,
        reference=torch.matmul,
        inputs=[tensor(shapes("m k")), tensor(shapes("j n"))],
        trials=10,
    )

    assert len(result.skipped) <= 1
