"""``nabla.check.minimize``: the shrinker of the fuzzer for any predicate of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from nabla_core.errors import UsageError

from ..inputs.specs import TensorSpec
from .recipe import Case
from .sampling import Recipe, Sampler
from .shrink import Shrunk, shrink

__all__ = ["minimize"]


def minimize(
    case: Case | TensorSpec | Sequence[TensorSpec],
    fails: Callable[..., object],
    *,
    seed: int = 0,
    max_calls: int = 200,
) -> Shrunk:
    """Return the smallest case for which ``fails`` is still true.

    Args:
        case: ``FuzzResult.minimum`` or ``failing``, or recipes of :func:`nabla_check.tensor`.
        fails: called with the drawn tensors. An exception counts as "does not fail", so that sizes
            which do not fit together are left alone: return ``True`` for the exception you mean.
        seed: of the values, for recipes.
        max_calls: bound on the calls of ``fails``.

    Raises:
        UsageError: ``case`` is neither, or ``fails`` is not true for it to begin with.
    """
    recipe = None
    if not isinstance(case, Case):
        specs = [case] if isinstance(case, TensorSpec) else list(case)
        if not specs or not all(isinstance(spec, TensorSpec) for spec in specs):
            raise UsageError(
                "minimize() needs a case of a FuzzResult, or recipes made by nabla.tensor(…)"
            )
        recipe = Recipe.of(specs)
        case = _first_failing(recipe, fails, seed, max_calls)
    elif not _holds(fails, case):
        raise UsageError("minimize(): the given case does not fail, so there is nothing to shrink")
    return shrink(case, lambda simpler: _holds(fails, simpler), recipe, max_calls)


def _first_failing(recipe: Recipe, fails: Callable[..., object], seed: int, most: int) -> Case:
    sampler = Sampler(recipe, seed)
    for trial in range(max(most, 1)):
        case = sampler.case(trial)
        if _holds(fails, case):
            return case
    raise UsageError(f"minimize(): none of {most} cases drawn from the recipes fails")


def _holds(fails: Callable[..., object], case: Case) -> bool:
    tensors: list[torch.Tensor] = case.build()
    try:
        return bool(fails(*tensors))
    except Exception:  # the predicate names what it means; anything else is another failure
        return False
