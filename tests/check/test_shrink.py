"""Structural shrinking: exact minima, few calls, nothing simpler left."""

import random

import pytest
import torch

from nabla_check.fuzzing.minimize_case import minimize
from nabla_check.fuzzing.recipe import Case, CaseInput
from nabla_check.fuzzing.sampling import Recipe
from nabla_check.fuzzing.shrink import shrink
from nabla_check.inputs.specs import shapes, tensor
from nabla_core.errors import UsageError

LAYOUTS = ["contiguous", "transposed", "strided", "sliced", "expanded"]
RECIPE = Recipe.of(
    [
        tensor(
            shapes(ranks=(1, 2, 3), dimensions=tuple(range(65))),
            dtype=[torch.bfloat16, torch.float32, torch.float64],
            layout=LAYOUTS,
        )
    ]
)


def big_case(size, seed=0):
    source = random.Random(seed)
    entry = CaseInput(
        axes=RECIPE.inputs[0].axes[-1],
        dtype=source.choice([torch.bfloat16, torch.float32]),
        layout=source.choice(LAYOUTS),
        values="ties",
        requires_grad=True,
    )
    sizes = tuple((axis, source.randint(1, 9)) for axis in entry.axes[:-1])
    return Case(
        sizes=(*sizes, (entry.axes[-1], size)), inputs=(entry,), cotangent="strided", seed=seed
    )


@pytest.mark.parametrize("threshold", [1, 5, 16, 20, 47])
def test_a_threshold_is_met_exactly_and_everything_else_becomes_simple(threshold):
    for seed in range(10):
        found = shrink(big_case(64, seed), lambda case: case.shapes[0][-1] > threshold, RECIPE)

        assert found.case.shapes == ((threshold + 1,),)
        (entry,) = found.case.inputs
        assert (entry.dtype, entry.layout, entry.values) == (torch.float64, "contiguous", "normal")
        assert found.case.cotangent == "contiguous"
        assert found.calls <= 40


@pytest.mark.parametrize(("block", "start"), [(8, 63), (8, 41), (16, 63), (4, 50), (8, 60)])
def test_sizes_beside_a_block_are_met_exactly(block, start):
    def fails(case):
        size = case.shapes[0][-1]
        return size > block and size % block != 0

    assert shrink(big_case(start), fails, RECIPE).case.shapes == ((block + 1,),)


def test_an_attribute_that_matters_is_kept():
    def fails(case):
        return case.inputs[0].dtype is torch.float32 and case.inputs[0].layout != "contiguous"

    start = big_case(9).with_inputs([CaseInput(
        axes=RECIPE.inputs[0].axes[-1],
        dtype=torch.float32,
        layout="expanded",
        values="ties",
        requires_grad=True,
    )])  # fmt: skip
    (entry,) = shrink(start, fails, RECIPE).case.inputs

    assert entry.dtype is torch.float32
    assert entry.layout == "transposed"  # the first one that is not contiguous


def test_no_case_is_tried_twice_and_the_bound_is_kept():
    tried = []

    def fails(case):
        tried.append(case)
        return case.shapes[0][-1] > 20

    found = shrink(big_case(64), fails, RECIPE, max_calls=6)

    assert len(tried) == len(set(tried)) == found.calls == 6
    assert not found.complete
    assert found.case.shapes[0][-1] > 20


def test_minimize_shrinks_shapes_that_depend_on_each_other():
    def fails(a, b):
        return (a @ b).numel() >= 0 and a.shape[1] > 8

    found = minimize([tensor((5, 32)), tensor((32, 3))], fails)

    assert found.case.shapes[0][1] == found.case.shapes[1][0] == 9


def test_minimize_says_when_there_is_nothing_to_shrink():
    with pytest.raises(UsageError, match="none of 200 cases"):
        minimize(tensor(shapes("m")), lambda x: False)
    with pytest.raises(UsageError, match="does not fail"):
        minimize(big_case(3), lambda x: False)
    with pytest.raises(UsageError, match="recipes made by"):
        minimize([torch.zeros(3)], lambda x: True)
