"""Runs one entry of the manifest: a full check of ordinary inputs, then a campaign."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import torch

from nabla_core.errors import UsageError
from nabla_core.report import NotEvaluated

from ..check_operator import operator
from ..fuzzing.fuzz_operator import fuzz
from ..fuzzing.sampling import Recipe, example_case
from ..inputs.layout_names import LAYOUTS
from ..inputs.specs import TensorSpec, shapes, tensor
from ..result import CheckResult
from ..rules import BACKWARD_MISMATCH, COTANGENT_LAYOUT, INPUT_LAYOUT
from .manifest import ManifestOperator, ManifestOutcome
from .targets import load_target

__all__ = ["named_dtype", "recipe_specs", "run_entry"]


def run_entry(entry: ManifestOperator, seed: int) -> ManifestOutcome:
    """Check one operator of the manifest.

    Raises:
        UsageError: there are neither recipes nor ``inputs`` beside it, or a name is unknown.
        InputError: it or its reference cannot be imported.
    """
    candidate, module = load_target(entry.target)
    reference = None if entry.reference is None else load_target(entry.reference)[0]
    no_layout, no_oracle = entry.reason("layout"), entry.reason("oracle")
    layouts = ("contiguous",) if no_layout else entry.layouts
    specs = recipe_specs(entry.recipes, entry.dtypes, layouts)
    check = operator(
        candidate=candidate,
        reference=reference,
        inputs=example_case(Recipe.of(specs), seed).build() if specs else _beside(entry, module),
        seed=seed,
        check_layout=False if no_layout else None,
        check_finite_difference=False if no_oracle else None,
        check_double_backward=False if no_oracle else None,
        check_variations=False if no_oracle else None,
    )
    check = _with_reasons(check, no_layout, no_oracle)
    if not specs or not entry.trials or (no_oracle and reference is None):
        return ManifestOutcome(operator=entry, check=check)
    campaign = fuzz(
        candidate=candidate,
        reference=reference,
        inputs=specs,
        trials=entry.trials,
        seed=seed,
        cotangent_layouts=("contiguous",) if no_layout else LAYOUTS,
    )
    return ManifestOutcome(operator=entry, check=check, fuzz=campaign)


def recipe_specs(
    recipes: tuple[str, ...], dtypes: tuple[str, ...], layouts: tuple[str, ...]
) -> list[TensorSpec]:
    """Return one tensor recipe per text like ``"m k"``.

    Raises:
        UsageError: a dtype or layout is unknown, or a recipe is empty.
    """
    if any(not text.split() for text in recipes):
        raise UsageError('a recipe is empty: name the axes like "m k", or 1 for a scalar')
    return [
        tensor(
            shapes(text),
            dtype=[named_dtype(name) for name in dtypes],
            layout=layouts,
        )
        for text in recipes
    ]


def named_dtype(name: str) -> torch.dtype:
    """Return the dtype called ``name``.

    Raises:
        UsageError: there is none.
    """
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"dtype {name!r}: name one of torch's, e.g. float64, float32, bfloat16")
    return found


def _beside(entry: ManifestOperator, module: ModuleType) -> object:
    given: object = getattr(module, "inputs", None)
    if given is None:
        raise UsageError(
            f'{entry.target}: no inputs; give recipes = ["m k", …], or define inputs beside it'
        )
    return given() if callable(given) else given


def _with_reasons(check: CheckResult, no_layout: str | None, no_oracle: str | None) -> CheckResult:
    rows = [
        (INPUT_LAYOUT, "layout", no_layout),
        (COTANGENT_LAYOUT, "layout", no_layout),
        (BACKWARD_MISMATCH, "oracle", no_oracle),
    ]
    told = tuple(
        NotEvaluated(rule=rule.id, reason=f"exempt from {what}: {reason}")
        for rule, what, reason in rows
        if reason is not None
    )
    ids = {entry.rule for entry in told}
    kept = tuple(entry for entry in check.not_evaluated if entry.rule not in ids)
    return replace(check, not_evaluated=(*kept, *told))
