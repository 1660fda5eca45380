"""Recipes as Hypothesis strategies."""

import pytest
import torch
from hypothesis import find, given, settings

from nabla_check.inputs.specs import shapes, tensor
from nabla_check.strategies import cases, tensors
from nabla_core.errors import UsageError

QUIET = settings(max_examples=25, deadline=None, database=None, derandomize=True)
PAIR = (tensor(shapes("m k"), dtype=[torch.float64, torch.float32]), tensor(shapes("k n")))


@QUIET
@given(tensors(*PAIR))
def test_shared_symbols_fit(inputs):
    a, b = inputs

    assert (a.double() @ b).shape == (a.shape[0], b.shape[1])
    assert a.requires_grad


@pytest.mark.parametrize("threshold", [20, 47])
def test_sizes_shrink_to_the_exact_minimum(threshold):
    found = find(
        cases(tensor(shapes("n"), layout=["strided", "contiguous"])),
        lambda case: case.shapes[0][0] > threshold,
        settings=settings(max_examples=300, database=None, derandomize=True),
    )

    assert found.shapes == ((threshold + 1,),)
    assert found.inputs[0].layout == "contiguous"


def test_the_caller_bounds_open_sizes():
    with pytest.raises(Exception, match="NoSuchExample|No examples"):
        find(
            cases(tensor(shapes("n")), most=8),
            lambda case: case.shapes[0][0] > 8,
            settings=settings(max_examples=50, database=None, derandomize=True),
        )


def test_no_recipe_is_an_error():
    with pytest.raises(UsageError, match="at least one recipe"):
        cases()
