"""Cases: deterministic, covering, inside what the caller allows."""

import pytest
import torch

from nabla_check.fuzzing.fitting import fit_recipe
from nabla_check.fuzzing.recipe import Case, CaseInput
from nabla_check.fuzzing.sampling import LANDMARKS, Recipe, Sampler, example_case
from nabla_check.fuzzing.subject import Subject
from nabla_check.fuzzing.values import FILLS, fill, fills_within
from nabla_check.inputs.specs import shapes, tensor


def draw(recipe, seed=0, count=60):
    sampler = Sampler(recipe, seed)
    return [sampler.case(trial) for trial in range(count)]


def test_the_same_seed_gives_the_same_cases_in_any_order():
    recipe = Recipe.of([tensor(shapes("m k"), layout=["strided", "expanded"])])
    forward = draw(recipe, seed=3)
    sampler = Sampler(recipe, 3)

    assert [sampler.case(trial) for trial in reversed(range(60))] == forward[::-1]
    assert draw(recipe, seed=4) != forward


def test_a_case_builds_equal_values_in_any_dtype_and_layout():
    def case(dtype, layout):
        entry = CaseInput(
            axes=("m", "3"), dtype=dtype, layout=layout, values="normal", requires_grad=True
        )
        return Case(sizes=(("m", 4),), inputs=(entry,), cotangent="contiguous", seed=5)

    (plain,) = case(torch.float64, "contiguous").build()
    (other,) = case(torch.float32, "transposed").build()

    assert plain.shape == (4, 3)
    assert torch.equal(plain.float(), other)
    assert not other.is_contiguous()
    assert other.is_leaf and other.requires_grad


def test_shared_symbols_have_one_size_and_every_landmark_is_used():
    cases = draw(Recipe.of([tensor(shapes("m k")), tensor(shapes("k n"))]), count=80)

    assert all(case.shapes[0][1] == case.shapes[1][0] for case in cases)
    assert {case.size_of["m"] for case in cases} >= set(LANDMARKS) - {63, 64, 65}


def test_sizes_that_the_caller_chose_are_the_only_ones():
    recipe = Recipe.of([tensor(shapes(ranks=(0, 2), dimensions=(7, 32)))])
    found = {case.shapes[0] for case in draw(recipe)}

    assert found <= {(), (7, 7), (7, 32), (32, 7), (32, 32)}
    assert () in found


def test_values_stay_in_the_domain_of_the_distribution():
    recipe = Recipe.of([tensor((40,), distribution="positive")])

    assert all(bool((case.build()[0] > 0).all()) for case in draw(recipe))


def test_a_tensor_has_a_bounded_number_of_elements():
    recipe = Recipe.of([tensor(shapes("a b c d"))])

    assert max(case.build()[0].numel() for case in draw(recipe, count=30)) <= 8192


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("name", FILLS)
def test_all_kinds_of_values_are_finite(name, dtype):
    drawn = fill(name, (50,), dtype, torch.Generator().manual_seed(0))

    assert drawn.dtype is dtype
    assert bool(torch.isfinite(drawn).all())


def test_special_values_are_what_they_are_called():
    generator = torch.Generator().manual_seed(0)
    tiny = fill("subnormal", (200,), torch.float32, generator)
    ties = fill("ties", (50,), torch.float64, generator)

    assert bool(((tiny != 0) & (tiny.abs() < torch.finfo(torch.float32).smallest_normal)).any())
    assert len(ties.unique()) <= 5
    assert fills_within("positive") == ("positive", "ones")


@pytest.mark.parametrize(
    ("reference", "specs"),
    [
        (torch.matmul, [tensor(shapes(ranks=(2,))), tensor((16, 5))]),
        (torch.add, [tensor(shapes(ranks=(2,))), tensor(shapes(ranks=(2,)))]),
        (
            torch.nn.functional.linear,
            [
                tensor(shapes(ranks=(2,)), dtype=[torch.float64, torch.float32]),
                tensor((32, 16)),
            ],
        ),
    ],
)
def test_equalities_that_the_reference_wants_are_found(reference, specs):
    recipe = Recipe.of(specs)
    subject = Subject(candidate=reference, reference=reference, arguments=(None,) * 2, slots=(0, 1))
    fitted = fit_recipe(recipe, subject, 0)

    for case in draw(fitted, seed=9, count=20):
        reference(*case.build())


def test_a_recipe_that_is_accepted_stays_as_it_is():
    recipe = Recipe.of([tensor(shapes("m k")), tensor(shapes("k n"))])
    subject = Subject(
        candidate=torch.matmul, reference=torch.matmul, arguments=(None,) * 2, slots=(0, 1)
    )

    assert fit_recipe(recipe, subject, 0) == recipe


def test_the_example_has_small_different_sizes():
    case = example_case(Recipe.of([tensor(shapes("m k")), tensor(shapes("k n"))]), 0)

    assert len(set(dict(case.sizes).values())) == 3
    assert "input0 (" in case.describe()
