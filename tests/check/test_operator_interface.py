"""``nabla_check.operator`` as a person calls it: options, result, sessions, command line."""

import json
import os

import pytest
import torch
from click.testing import CliRunner

from nabla_check import operator, tensor
from nabla_check.rules import RULES
from nabla_core.errors import CheckFailed, UsageError
from nabla_core.session import Session


@pytest.fixture
def half(square):
    return square(lambda x, g: g * x)


@pytest.fixture
def right(square):
    return square(lambda x, g: g * 2 * x)


def test_seed_repeats_a_check(check, half):
    texts = {check(half, [tensor((4,))], seed=3).format() for _ in range(2)}

    assert len(texts) == 1
    assert check(half, [tensor((4,))], seed=4).format() not in texts


def test_seed_is_drawn_and_reported_by_default(right):
    results = [operator(candidate=right, inputs=[tensor((4,))]) for _ in range(2)]

    assert results[0].seed != results[1].seed
    assert str(results[0].seed) in results[0].format()


def test_result_is_a_test_of_its_own(check, half, right):
    check(right, [tensor((4,))]).raise_if_failed()
    with pytest.raises(CheckFailed, match="CHK201"):
        check(half, [tensor((4,))]).raise_if_failed()


def test_result_is_json_and_short(check, half):
    result = check(half, [tensor((4, 3))], reference=torch.square)

    loaded = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert loaded["passed"] is False
    assert loaded["issues"][0]["reproduction"]["seed"] == 7
    assert len(result.format().splitlines()) <= 25
    assert "<pre>" in result._repr_html_()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"chek_jvp": True}, "check_jvp"),
        ({"level": "second-order"}, "first-order"),
        ({"vjp_cotangent": "twos"}, "random"),
        ({"budget_s": 0}, "budget_s"),
        ({"relative_tolerance": -1.0}, "relative_tolerance"),
    ],
)
def test_wrong_options_are_named(check, right, options, named):
    with pytest.raises(UsageError, match=named):
        check(right, [tensor((4,))], **options)


@pytest.mark.parametrize(("candidate", "inputs"), [(3, [tensor()]), (torch.sin, 3)])
def test_unusable_arguments_are_refused(check, candidate, inputs):
    with pytest.raises(UsageError):
        check(candidate, inputs)


def test_keywords_of_older_tools_work(check, half):
    result = check(
        half,
        [tensor(shape=(32,), dtype=torch.float64)],
        reference=lambda x: x.square(),
        vjp_cotangent="random",
        check_jvp=True,
        check_finite_difference=True,
        check_double_backward=True,
        check_determinism=True,
    )

    assert "CHK201" in {issue.rule for issue in result.failures}


def test_dropped_checks_do_not_run(faults, half, right, normal):
    dropped = {"check_backward": False, "check_finite_difference": False, "check_variations": False}

    assert (
        faults(half, [normal(4)], reference=torch.square, level="first-order", **dropped) == set()
    )
    tolerant = {"relative_tolerance": 1.0, "level": "first-order"}
    assert faults(half, [normal(4)], reference=torch.square, **tolerant) == set()


def test_spent_budget_is_said(check, right):
    result = check(right, [tensor((4,))], budget_s=1e-9)

    assert result.passed
    assert any("budget" in entry.reason for entry in result.not_evaluated)


def test_keyword_arguments_and_nests_are_inputs(faults, normal):
    def candidate(pair, *, scale):
        return pair["a"] * pair["b"][0] * scale

    inputs = [{"a": normal(3), "b": (normal(3, seed=1),)}]
    assert faults(candidate, inputs, kwargs={"scale": 2.0}) == set()
    assert (
        faults(torch.nn.functional.linear, {"input": normal(2, 3), "weight": normal(4, 3)}) == set()
    )


def test_modules_and_methods_are_candidates(faults, normal):
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))

        def forward(self, x):
            return x * self.weight

        def wrong(self, x):
            return x * (self.weight + (0.0 * x.detach()).sum()).detach()

    model = Scale()
    assert faults(model, [normal(2, 3)]) == set()
    assert faults(model, [normal(2, 3)], reference=lambda x: x * model.weight) == set()
    assert faults(model.wrong, [normal(2, 3)], level="first-order") == {"CHK202"}


def test_inputs_of_the_caller_are_left_alone(check, half):
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    kept = x.detach().clone()

    check(half, [x])

    assert torch.equal(x, kept)
    assert x.grad is None


def test_calls_do_not_grow_with_the_input(check, right):
    counts = []
    for size in (16, 262_144):
        x = torch.randn(size, dtype=torch.float64, requires_grad=True)
        result = check(right, [x])
        assert result.passed
        counts += [result.forward_calls, result.backward_calls]

    assert max(counts) <= 30


def test_issues_go_to_the_current_session(check, half):
    with Session() as session:
        check(half, [tensor((4,))])

    assert [issue.rule for issue in session.issues] == ["CHK201"]
    assert "CHK201" in session.rules_used


def test_allowed_issues_are_set_aside_with_their_reason(check, half):
    from nabla_core import allow

    with allow("CHK201", reason="known half"):
        result = check(half, [tensor((4,))])

    assert result.passed
    assert [entry.reason for entry in result.allowed] == ["known half"]


def test_every_rule_states_an_example():
    assert len(RULES) == len({rule.id for rule in RULES}) == 23
    assert all(rule.example is not None for rule in RULES)


FILE = """
import torch

class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

def inputs():
    return [torch.randn(4, dtype=torch.float64, requires_grad=True)]
"""


@pytest.fixture
def nabla(tmp_path):
    from nabla_core.cli.shell import shell

    (tmp_path / "ops.py").write_text(FILE)

    def run(*words):
        filled = [word.replace("FILE", str(tmp_path / "ops.py")) for word in words]
        return CliRunner().invoke(shell, ["--no-config", "check", *filled], standalone_mode=False)

    return run


def test_command_checks_several_targets(nabla):
    result = nabla(
        "FILE:Half", "torch:sin", "--shape", "4,3", "--seed", "1", "--reference", "torch:square"
    )

    assert result.return_value == 1
    assert "CHK201" in result.stdout and "CHK101" in result.stdout
    assert nabla("torch:sin", "torch:exp", "--shape", "3").return_value == 0


def test_command_takes_inputs_from_the_file(nabla):
    assert nabla("FILE:Half", "--level", "first-order").return_value == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["torch.sin"], "module:function"),
        (["torch:nothing", "--shape", "3"], "nothing"),
        (["no_such_module:f", "--shape", "3"], "no_such_module"),
        (["missing.py:f", "--shape", "3"], "no such file"),
        (["torch:sin"], "--shape"),
        (["torch:sin", "--shape", "three"], "three"),
        (["torch:sin", "--shape", "3,x"], "3,x"),
        (["torch.nn:ReLU", "--shape", "3"], "is a class"),
    ],
)
def test_mistakes_on_the_command_line_are_named(nabla, words, named):
    result = nabla(*words)

    assert isinstance(result.exception, UsageError)
    assert named in str(result.exception)


@pytest.mark.parametrize("name", ["ends.py", os.fsdecode(b"ends\xff.py")])
def test_a_script_that_ends_itself_is_no_operator(nabla, tmp_path, name):
    (tmp_path / name).write_text("import sys\nsquare = lambda x: x * x\nsys.exit(7)\n")

    result = nabla(f"{tmp_path / name}:square", "--shape", "3")

    assert isinstance(result.exception, UsageError)
    assert "raised SystemExit: 7" in str(result.exception)


def test_an_operator_that_ends_the_process_is_a_failure(nabla, tmp_path):
    (tmp_path / "leaves.py").write_text("import sys\ndef square(x):\n    sys.exit(0)\n")

    result = nabla(f"{tmp_path / 'leaves.py'}:square", "--shape", "3")

    assert result.return_value == 1
    assert "SystemExit: 0" in result.stdout


def test_command_stores_evidence(nabla, tmp_path):
    folder = tmp_path / "evidence"

    nabla("FILE:Half", "--level", "first-order", "--artifact-dir", str(folder))

    assert list(folder.rglob("*.json"))


def test_float32_inside_an_operator_is_said(check, normal):
    result = check(lambda x: x.float().sin().to(x.dtype), [normal(6)])

    assert result.passed
    assert "digits of float32 only" in result.format()


def test_a_second_derivative_at_a_singular_point_is_undecided(check, function):
    def forward(ctx, x):
        size = x.norm(dim=-1)
        ctx.save_for_backward(x, size)
        return size

    def backward(ctx, g):
        x, size = ctx.saved_tensors
        return torch.where(size[..., None] > 0, g[..., None] * x / size[..., None], 0.0)

    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 2.0]], dtype=torch.float64, requires_grad=True)

    result = check(function(forward, backward), [x])

    assert result.passed
    assert "double backward not decided: it is not finite" in result.format()


def test_a_reference_that_raises_is_refused():
    def refuse(x):
        raise RuntimeError("boom")

    x = torch.ones(3, dtype=torch.float64, requires_grad=True)

    with pytest.raises(UsageError, match=r"reference of .* raised RuntimeError: boom"):
        operator(candidate=torch.sin, inputs=[x], reference=refuse)


def test_a_reference_that_takes_no_float64_is_said(check):
    def narrow(x):
        if x.dtype is torch.float64:
            raise TypeError("float32 only")
        return x.sin()

    result = check(torch.sin, [torch.ones(3, requires_grad=True)], reference=narrow)

    assert result.passed
    assert "reference not decided: it raised TypeError: float32 only" in result.format()


def test_an_empty_input_is_said_to_decide_nothing(check):
    result = check(lambda x: x * x, [torch.zeros(0, dtype=torch.float64, requires_grad=True)])

    assert result.passed
    assert "hold no element" in result.format()
