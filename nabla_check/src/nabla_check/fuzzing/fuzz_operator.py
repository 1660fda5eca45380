"""``nabla.check.fuzz``: many drawn cases, the smallest failing one, and its explanation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import torch

from nabla_core.errors import UsageError
from nabla_core.issue import Issue
from nabla_core.rule import Rule

from ..delivery import deliver
from ..evidence.artifact import Evidence, write_artifact
from ..inputs import rng
from ..inputs.callee import Callee, name_of
from ..inputs.operands import Operands
from ..inputs.specs import TensorSpec
from ..rules import (
    BACKWARD_MISMATCH,
    COTANGENT_LAYOUT,
    FORWARD_MISMATCH,
    INCONCLUSIVE,
    INPUT_LAYOUT,
    MISSING_GRADIENT,
    MUTATES_INPUT,
    OPERATOR_EXCEPTION,
    OUTPUT_STRUCTURE,
    PROPERTY_VIOLATION,
    RULES,
)
from .agreement import Tolerances
from .campaign import Campaign, Search, search
from .explanation import Explanation, explain
from .fitting import fit_recipe
from .fuzz_options import FuzzKeywords, FuzzOptions
from .fuzz_result import FuzzResult
from .progress import Progress
from .recipe import Case
from .sampling import Recipe, Sampler
from .shrink import Shrunk, shrink
from .subject import Subject, preserved
from .trial import Trial, TrialOptions

__all__ = ["fuzz"]

Function = Callable[..., object]


def fuzz(
    *,
    candidate: Function,
    inputs: Sequence[object],
    reference: Function | None = None,
    trials: int = 100,
    seed: int = 0,
    **options: Unpack[FuzzKeywords],
) -> FuzzResult:
    """Search shapes, dtypes, layouts and values for a case in which an operator is wrong.

    Every trial compares outputs and gradients with the reference, up to what rounding explains, or
    the gradient with a numerical derivative when there is none. The first failing case is shrunk to
    the smallest one and explained by :func:`nabla_check.operator`.

    Args:
        candidate: the operator.
        inputs: its positional arguments; recipes of :func:`nabla_check.tensor` are drawn, e.g.
            ``tensor(shapes("m k"))`` and ``tensor(shapes("k n"))`` with a shared size ``k``.
        reference: trusted implementation with the same arguments; it defines the truth. Cases that
            it refuses are skipped.
        trials: number of cases to compare.
        seed: the same seed tries the same cases.
        **options: see :class:`nabla_check.FuzzOptions`.

    Returns:
        The smallest failing case with its verdicts, or how many cases passed. Global random
        generators and the buffers of modules are left as they were.

    Raises:
        UsageError: an option, an input or the candidate cannot be used.
    """
    chosen = FuzzOptions.of(options)
    if trials < 1:
        raise UsageError(f"trials={trials}: needs at least 1")
    before = rng.capture()
    progress = Progress("fuzz", trials, chosen.show_progress)
    try:
        with preserved(candidate, reference):
            campaign = _campaign(candidate, reference, inputs, chosen, seed)
            found = search(campaign, trials, chosen.executor, chosen.budget_s, progress)
            progress.close()
            return _conclude(campaign, found, trials, chosen)
    finally:
        progress.close()
        rng.restore(before)


def _campaign(
    candidate: Function,
    reference: Function | None,
    inputs: Sequence[object],
    options: FuzzOptions,
    seed: int,
) -> Campaign:
    callee = Callee(candidate)
    if isinstance(inputs, TensorSpec):
        inputs = [inputs]
    if not isinstance(inputs, (list, tuple)):
        raise UsageError(f"inputs is {type(inputs).__name__}: give a list of recipes and arguments")
    slots = tuple(index for index, value in enumerate(inputs) if isinstance(value, TensorSpec))
    if not slots:
        raise UsageError("inputs holds no recipe: make at least one with nabla.tensor(…)")
    specs = [value for value in inputs if isinstance(value, TensorSpec)]
    recipe = Recipe.of(specs, options.cotangent_layouts or ("contiguous",))
    arguments = tuple(None if index in slots else value for index, value in enumerate(inputs))
    subject = Subject(
        candidate=candidate,
        reference=reference,
        arguments=arguments,
        slots=slots,
        kwargs=options.kwargs,
    )
    subject = replace(subject, names=_names(callee, subject, Sampler(recipe, seed).case(0)))
    return Campaign(
        subject=subject,
        options=TrialOptions(
            backward=options.check_backward,
            tolerances=Tolerances(
                absolute=options.absolute_tolerance, relative=options.relative_tolerance
            ),
            laws=tuple(options.properties),
        ),
        recipe=recipe,
        fitted=fit_recipe(recipe, subject, seed),
        seed=seed,
    )


def _names(callee: Callee, subject: Subject, case: Case) -> tuple[str, ...]:
    """Return the candidate's own names of the drawn tensors."""
    tensors = case.build()
    filled = subject.filled(tensors)
    operands = Operands.gather(callee, filled, subject.kwargs, torch.Generator())
    known = {
        id(leaf): name for leaf, name in zip(operands.tree.leaves, operands.names, strict=True)
    }
    return tuple(known[id(tensor)] for tensor in tensors)


def _conclude(
    campaign: Campaign, found: Search, requested: int, options: FuzzOptions
) -> FuzzResult:
    result = FuzzResult(
        candidate=name_of(campaign.subject.candidate),
        issues=(),
        seed=campaign.seed,
        trials=found.compared,
        requested=requested,
        skipped=dict(found.skipped.most_common(5)),
    )
    if found.failing is None or found.finding is None:
        kept, allowed = deliver(_notes(campaign, found, requested), _decided(campaign, found))
        return replace(result, issues=kept, allowed=allowed)
    shrunk = _shrunk(campaign, found, options.max_shrink_calls)
    finding = Trial(campaign.subject, campaign.options).run(shrunk.case).finding or found.finding
    setting = shrunk.case.describe(campaign.subject.names)
    explanation = explain(campaign, shrunk.case, finding, setting)
    artifact = _stored(campaign, shrunk.case, explanation, options)
    issues = [replace(issue, artifact=artifact) for issue in explanation.issues]
    kept, allowed = deliver(issues, RULES)
    return replace(
        result,
        issues=kept,
        allowed=allowed,
        minimum=shrunk.case,
        failing=found.failing,
        shrink_calls=shrunk.calls,
        setting=setting,
        artifact=artifact,
    )


def _shrunk(campaign: Campaign, found: Search, max_calls: int) -> Shrunk:
    if found.failing is None or found.finding is None:
        raise RuntimeError("nothing failed")
    trial, kind = Trial(campaign.subject, campaign.options), found.finding.kind

    def fails(simpler: Case) -> bool:
        finding = trial.run(simpler).finding
        return finding is not None and finding.kind == kind

    return shrink(found.failing, fails, found.recipe, max_calls)


def _notes(campaign: Campaign, found: Search, requested: int) -> list[Issue]:
    """Say what was not compared: a campaign that skipped everything has verified nothing."""
    if found.compared >= requested:
        return []
    why = found.stopped or _commonest(found.skipped)
    note = INCONCLUSIVE.issue(
        f"Only {found.compared} of {requested} trials could be compared: {why}.",
        compared=found.compared,
        requested=requested,
    )
    return [replace(note, plugin="check")]


def _commonest(skipped: Counter[str]) -> str:
    reason, count = skipped.most_common(1)[0] if skipped else ("no case was drawn", 0)
    return f"{count} cases were skipped because {reason}" if count else reason


def _stored(
    campaign: Campaign, case: Case, explanation: Explanation, options: FuzzOptions
) -> str | None:
    if options.artifact_dir is None:
        return None
    names = campaign.subject.names
    tensors = dict(zip(names, case.build(), strict=True)) if options.artifact_raw_tensors else {}
    folder = write_artifact(
        Path(options.artifact_dir),
        Evidence(
            kind="fuzz",
            subject=name_of(campaign.subject.candidate),
            seed=case.seed,
            issues=explanation.issues,
            setting=case.to_dict(),
            script=explanation.script,
            tensors=tensors,
        ),
    )
    return str(folder)


def _decided(campaign: Campaign, found: Search) -> tuple[Rule, ...]:
    """Return the rules that the trials themselves decide, none when nothing was compared."""
    if not found.compared:
        return ()
    laws = (PROPERTY_VIOLATION,) if campaign.options.laws else ()
    backward = (BACKWARD_MISMATCH, MISSING_GRADIENT) if campaign.options.backward else ()
    own = (OPERATOR_EXCEPTION, MUTATES_INPUT, INPUT_LAYOUT)
    if campaign.subject.reference is None:
        return (*own, *backward, *laws)
    return (*own, *backward, *laws, FORWARD_MISMATCH, OUTPUT_STRUCTURE, COTANGENT_LAYOUT)
