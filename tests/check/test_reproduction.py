"""Scripts bring an operator and its inputs back exactly."""

import math

import pytest
import torch

from nabla_check.evidence.reproduction import ScriptCase, reproduction_script, tensor_code
from nabla_check.evidence.source_code import source_of
from nabla_check.inputs.layout_names import LAYOUTS
from nabla_check.inputs.layouts import relayout

SCALE = 3


def top_level(x):
    return SCALE * helper(x)


def helper(x):
    return math.e * x.square()


def evaluate(text, name="f"):
    names = {"__name__": "fresh"}
    exec("import os, sys, torch\n" + text, names)
    return names[name]


def closed_over(n):
    class Op(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * n

        @staticmethod
        def backward(ctx, g):
            return g * n

    return Op.apply


@pytest.mark.parametrize(
    "function",
    [top_level, lambda x: x.square() + 1, closed_over(4), torch.tanh, torch.nn.functional.gelu],
    ids=["module", "lambda", "closure", "builtin", "torch"],
)
def test_a_function_comes_back_from_its_source(function):
    x = torch.linspace(-1, 1, 5, dtype=torch.float64)

    assert torch.equal(evaluate(source_of(function, "f"))(x), function(x))


def test_what_holds_state_is_not_written_out():
    assert source_of(torch.nn.Linear(2, 2), "f") is None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.int64])
def test_a_tensor_comes_back_with_values_and_strides(layout, dtype):
    source = relayout((torch.randn(3, 4, dtype=torch.float64) * 5).to(dtype), layout)
    again = evaluate(f"f = {tensor_code(source)}")

    assert torch.equal(again, source)
    assert (again.stride(), again.dtype) == (source.stride(), dtype)


def test_special_values_and_shapes_come_back():
    odd = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 5e-324], dtype=torch.float64)
    again = evaluate(f"f = {tensor_code(odd)}")

    assert torch.equal(again.view(torch.int64), odd.view(torch.int64))
    assert evaluate(f"f = {tensor_code(torch.zeros(0, 3))}").shape == (0, 3)
    assert evaluate(f"f = {tensor_code(torch.tensor(2.5, requires_grad=True))}").requires_grad
    assert tensor_code(torch.zeros(1000)) is None


def test_arguments_that_cannot_be_written_out_give_no_script():
    case = ScriptCase(title="t", candidate=torch.tanh, reference=None, inputs=[object()])

    assert reproduction_script(case) is None


def test_nests_and_keywords_are_written_out():
    case = ScriptCase(
        title="t",
        candidate=torch.tanh,
        reference=None,
        inputs=[[1, (2.0, None)], torch.zeros(2)],
        kwargs={"dim": -1, "dtype": torch.float32},
    )
    script = reproduction_script(case)

    compile(script, "script", "exec")
    assert "'dim': -1, 'dtype': torch.float32" in script
