"""The pure parts: nests, layouts, recipes, comparison, classification, random states."""

import random
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch

from nabla_check import shapes, tensor
from nabla_check.inputs import rng
from nabla_check.inputs.callee import Callee
from nabla_check.inputs.layout_names import LAYOUTS
from nabla_check.inputs.layouts import copy_as_is, relayout
from nabla_check.inputs.operands import Operands
from nabla_check.inputs.specs import draw
from nabla_check.inputs.surroundings import closed_over_tensors
from nabla_check.inputs.tree import flatten, leaves_of
from nabla_check.truth.authorship import has_own_derivatives
from nabla_check.wording.classify import classify
from nabla_check.wording.compare import deviation, same_bits
from nabla_check.wording.describe import apart
from nabla_core.errors import UsageError

Pair = namedtuple("Pair", "left right")


@dataclass
class Record:
    weight: object
    bias: object = None


NESTS = [
    3,
    (1, [2, {"a": 3}]),
    Pair(1, (2, 3)),
    Record([1, 2], 3),
    {"x": (), "y": [1]},
    [],
    torch.ones(2).sort(),
]


@pytest.mark.parametrize("nest", NESTS, ids=str)
def test_nests_are_rebuilt_from_their_leaves(nest):
    tree = flatten(nest)

    rebuilt = tree.build(tree.leaves)

    assert str(rebuilt).replace("torch.return_types.sort", "") == str(
        tuple(nest) if "return_types" in str(type(nest)) else nest
    ).replace("torch.return_types.sort", "")
    assert len(leaves_of(nest)) == len(tree.leaves)


def test_leaves_are_named_by_their_path():
    assert flatten([{"w": 1}, Record(2, 3)], "x").names == ("x[0]['w']", "x[1].weight", "x[1].bias")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 3, 4), (0, 3)])
def test_layouts_keep_values_and_copies_keep_strides(layout, shape):
    values = torch.randn(shape)
    other = relayout(values, layout)

    if layout != "expanded":
        assert torch.equal(other, values)
    assert other.shape == values.shape
    copy = copy_as_is(other)
    assert torch.equal(copy, other) and copy.data_ptr() != other.data_ptr() or not values.numel()
    if other.numel() > 1 and not other.is_contiguous():
        assert copy.stride() == other.stride()


def test_layouts_really_differ():
    values = torch.randn(3, 4)

    assert relayout(values, "transposed").stride() == (1, 3)
    assert relayout(values, "strided").stride() == (9, 2)
    assert relayout(values, "sliced").stride() == (7, 1)
    assert relayout(values, "expanded").stride() == (0, 0)


@pytest.mark.parametrize(
    "distribution", ["normal", "uniform", "positive", "ones", "zeros", "integers"]
)
def test_recipes_are_drawn_repeatably(distribution):
    spec = tensor((3, 2), distribution=distribution)
    first, second = (draw(spec, torch.Generator().manual_seed(1)) for _ in range(2))

    assert torch.equal(first, second)
    assert first.requires_grad == first.is_floating_point()


@pytest.mark.parametrize(
    "make",
    [
        lambda: tensor((3,), layout="diagonal"),
        lambda: tensor((3,), distribution="cauchy"),
        lambda: tensor((-1,)),
        lambda: shapes(ranks=()),
        lambda: shapes(dimensions=(-2,)),
    ],
)
def test_impossible_recipes_are_refused(make):
    with pytest.raises(UsageError):
        make()


@pytest.mark.parametrize(("error", "found"), [(0.9e-6, False), (1.1e-6, True)])
def test_deviation_is_judged_from_its_limit(error, found):
    expected = torch.tensor([1.0, -2.0], dtype=torch.float64)
    got = expected + torch.tensor([0.0, 2 * error], dtype=torch.float64)

    result = deviation(got, expected, relative=1e-6)

    assert (result is not None) is found
    if result is not None:
        assert result.index == (1,)


def test_nan_equals_nan_but_no_number():
    nan = torch.tensor([float("nan"), 1.0])

    assert deviation(nan, nan.clone(), relative=0.0) is None
    assert same_bits(nan, nan.clone())
    assert deviation(nan, torch.ones(2), relative=1.0) is not None


TRUTH = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def changed(index, value):
    out = TRUTH.clone()
    out[index] = value
    return out


@pytest.mark.parametrize(
    ("got", "pattern"),
    [
        (2 * TRUTH, "factor"),
        (-TRUTH, "sign"),
        (TRUTH.T.contiguous(), "transpose"),
        (torch.zeros_like(TRUTH), "missing"),
        (changed((2, 3), 9.0), "one element"),
        (changed((slice(4, None),), 0.0), "boundary block"),
        (changed(([0, 2],), 0.0), "zero rows"),
        (changed((1, 1), float("nan")), "non-finite"),
        (TRUTH + 0.5, "offset"),
        (TRUTH.float().double(), "rounding"),
        (TRUTH.half().double(), "rounding"),
        (TRUTH * (1 - 1e-3 * TRUTH.sigmoid()), "elements"),  # as large as in float16, but one-sided
        (TRUTH * TRUTH.exp(), "elements"),
    ],
)
def test_patterns_are_recognised(got, pattern):
    assert classify(got, TRUTH, noise=1e-9).pattern == pattern


def test_complex_numbers_show_the_part_that_differs():
    expected = torch.tensor([1 + 2j, 3 + 4j], dtype=torch.complex128)

    found = deviation(expected.conj().resolve_conj(), expected, relative=1e-9)

    assert (found.got, found.expected, found.part) == (-4.0, 4.0, "imaginary")


def test_random_states_are_restored_and_compared():
    before = rng.capture(with_numpy=True)
    torch.rand(1), random.random()
    assert set(rng.changed(before, rng.capture())) == {"torch", "random"}
    rng.restore(before)
    assert rng.changed(before, rng.capture()) == ()


def gather(function, inputs, **kwargs):
    return Operands.gather(Callee(function), inputs, kwargs, torch.Generator().manual_seed(0))


def test_operands_are_named_like_the_arguments():
    def f(x, weights, *, scale):
        return x

    found = gather(f, [torch.ones(2), {"a": torch.ones(1)}], scale=2.0)

    assert found.names == ("x", "weights['a']", "scale")


def test_operands_of_a_library_operator_are_named_by_its_schema():
    pair = [torch.ones(2), torch.ones(2)]

    assert gather(torch.ops.aten.mul.Tensor, pair).names == ("self", "other")
    assert gather(torch.ops.aten.mul, pair).names == ("self", "other")


def test_marked_inputs_are_live_and_the_others_frozen():
    marked, data = torch.ones(2, requires_grad=True), torch.ones(2)

    some = gather(lambda x, y: x, [marked, data])
    assert (some.live_names, some.assumed) == (("x",), frozenset())
    none = gather(lambda x, y: x, [data, torch.arange(2)])
    assert (none.live_names, none.assumed) == (("x",), {0})


def test_parameters_of_modules_and_methods_are_operands():
    layer = torch.nn.Linear(3, 2)

    for function in (layer, layer.forward):
        found = gather(function, [torch.ones(4, 3)])
        assert found.live_names == ("input", "weight", "bias")


def test_cast_keeps_integers_and_gradients():
    found = gather(lambda x, i: x, [torch.ones(2, requires_grad=True), torch.arange(2)])

    wide = found.cast(torch.float64)

    assert [leaf.dtype for leaf in wide.tree.leaves] == [torch.float64, torch.int64]
    assert wide.values()[0].requires_grad


def test_own_derivatives_are_told_from_those_of_torch(square, normal):
    x = normal(3)

    assert not has_own_derivatives([torch.softmax(x @ x.T if x.dim() > 1 else x, -1)])
    assert has_own_derivatives([square(lambda x, g: g * 2 * x)(x) + 1])


def test_surrounding_tensors_are_found():
    weight = torch.ones(3)

    def by_default(x, *, w=weight):
        return x * w

    def by_closure(x):
        return by_default(x)

    assert [t is weight for t in closed_over_tensors(by_closure)] == [True]


def test_numbers_are_written_until_they_differ():
    assert apart(1.0, 2.0) == ("1", "2")
    left, right = apart(0.123456789012, 0.123456789013)
    assert left != right
