"""GEO2xx and GEO9xx: what the geometry of a batch says, and what it does not know."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median_low

import torch
from torch import Tensor

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.reporters.style import counted
from nabla_core.severity import Severity

from .ghost.reductions import Composition
from .ghost.study import StudyResult
from .gram_facts import GramFacts, within_label_cosine
from .options import TraceOptions
from .rules.honesty import COVERAGE_INCOMPLETE, SAMPLES_COUPLED, SELF_CHECK_FAILED
from .rules.samples import (
    BATCH_CANCELLATION,
    LABEL_SUSPECT,
    SAMPLE_DOMINANT,
    SAMPLE_DUPLICATE,
    SAMPLE_OPPOSING,
)

__all__ = ["honesty_issues", "label_suspects", "norm_issues", "pair_issues"]

_HALF = 0.5
_EQUAL = 1e-4
_FEWEST = 4
_SHOWN = 64
_LONE = 0.05
_AGREE = 0.1
_SIGMA = 1.4826  # of a median deviation in a normal distribution
_RARE = 3.0
_TOGETHER = 8.0
"""Times the squared length that independent gradients have together: from here on the others have a
direction that one can be against."""


def norm_issues(lengths: Sequence[float], options: TraceOptions) -> Iterator[Issue]:
    """Yield the sample that supplies most of the gradient.

    Args:
        lengths: of each sample's gradient.
        options: limits.
    """
    total = sum(lengths)
    if len(lengths) < _FEWEST or not total > 0:
        return
    highest = max(lengths)
    share = highest / total
    if not share > _HALF:
        return
    sample, ratio = lengths.index(highest), highest / max(median_low(lengths), 1e-300)
    if ratio > options.sample_share:
        yield SAMPLE_DOMINANT.issue(
            f"Sample {sample} supplies {share:.0%} of the gradient length of {len(lengths)} "
            f"samples, limit {_HALF:.0%}.",
            where=Location(sample=sample),
            share=Quantity(value=share, limit=_HALF),
            times_median=Quantity(value=ratio, limit=options.sample_share),
        )


def pair_issues(
    facts: GramFacts, options: TraceOptions, inputs: Sequence[Tensor] = ()
) -> Iterator[Issue]:
    """Yield opposing samples, duplicates and cancellation.

    Args:
        facts: of an exact Gram.
        options: limits.
        inputs: what the samples are; those with a row for each are compared.
    """
    if len(facts.lengths) < _FEWEST or not sum(facts.lengths) > 0:
        return
    yield from _opposing(facts, options)
    yield from _duplicates(facts, options, inputs)
    agreement = facts.agreement
    if agreement < _LONE and facts.cancellation > 0:
        yield BATCH_CANCELLATION.issue(
            f"The squared length of the sum of {len(facts.gram)} gradients is {agreement:.2g} of "
            f"the sum of their squared lengths, limit {_LONE}; independent samples give 1.",
            agreement=Quantity(value=agreement, limit=_LONE),
            cancellation=facts.cancellation,
        )


def _opposing(facts: GramFacts, options: TraceOptions) -> Iterator[Issue]:
    norms, mean = facts.norms, sum(facts.lengths) / len(facts.lengths)
    if not max(facts.lengths) >= 2 * mean:
        return
    found = norms >= 2 * mean
    leave, rest = facts.leave_one_out, facts.rest_agreement
    # near a minimum the sum of all is zero and every sample is against the sum of the others
    found &= (leave < options.opposing_cosine) & (rest > _TOGETHER)
    samples = [int(i) for i in found.nonzero().flatten()]
    if not samples or len(samples) > len(norms) // 4:
        return  # when many oppose, the batch has no common direction: cancellation, not outliers
    worst = min(samples, key=lambda i: float(leave[i]))
    others = "" if len(samples) == 1 else f"; {len(samples)} samples do"
    yield SAMPLE_OPPOSING.issue(
        f"Sample {worst} has the cosine {float(leave[worst]):.2f} to the sum of the other "
        f"{len(norms) - 1} gradients, limit {options.opposing_cosine:.2f}{others}.",
        where=Location(sample=worst),
        leave_one_out=Quantity(value=float(leave[worst]), limit=options.opposing_cosine),
        rest_agreement=Quantity(value=float(rest[worst]), limit=_TOGETHER),
        samples=_listed(samples),
    )


def _duplicates(
    facts: GramFacts, options: TraceOptions, inputs: Sequence[Tensor]
) -> Iterator[Issue]:
    squares = facts.squares
    distance = torch.add(squares[:, None], facts.gram, alpha=-2).add_(squares)
    near = distance <= _EQUAL * squares[:, None]
    if int(near.sum()) <= len(squares):
        return  # each is near itself only
    equal = (near | near.T) & (facts.cosines >= options.duplicate_cosine)
    pairs = equal.triu(1).nonzero()
    if not len(pairs):
        return
    rows = [tensor for tensor in inputs if tensor.dim() and len(tensor) == len(squares)]
    same = [(i, j) for i, j in pairs[:_SHOWN].tolist() if _are_equal(rows, i, j)]
    few = 4 * int(equal.triu(1).any(0).sum()) <= len(squares)  # else the data are discrete
    first, second = same[0] if same else (int(i) for i in pairs[0])
    more = "" if len(pairs) == 1 else f"; {len(pairs)} pairs are"
    yield SAMPLE_DUPLICATE.issue(
        f"Samples {first} and {second} have the same gradient: cosine "
        f"{float(facts.cosines[first, second]):.6f}, limit {options.duplicate_cosine}{more}.",
        where=Location(sample=second),
        severity=None if same and few else Severity.INFO,
        cosine=Quantity(value=float(facts.cosines[first, second]), limit=options.duplicate_cosine),
        pairs=len(pairs),
    )


def _are_equal(rows: Sequence[Tensor], first: int, second: int) -> bool:
    """Whether two samples are the same; what cannot be compared is."""
    return all(torch.equal(tensor[first], tensor[second]) for tensor in rows)


def label_suspects(
    facts: GramFacts, labels: Tensor, losses: Tensor | None, options: TraceOptions
) -> Iterator[Issue]:
    """Yield the samples whose gradient disagrees with their label.

    Args:
        facts: of an exact Gram.
        labels: integers, shape ``[N]``.
        losses: shape ``[N]``, if known; a suspect has an unusual loss too.
        options: limits.
    """
    found = _unusual(facts.lengths, losses, options)
    if not any(found):
        return
    agreement = within_label_cosine(facts.cosines, labels)
    usual = float(agreement.nanmedian())
    if not usual > _AGREE:
        return  # samples of one label do not agree: there is nothing to deviate from
    spread = _SIGMA * float((agreement - usual).abs().nanmedian())
    bound = min(options.label_agreement * usual, usual - _RARE * spread)
    counts = (labels[:, None] == labels[None, :]).sum(1)
    alone = (agreement < bound) & (counts >= 3)
    samples = [sample for sample, off in enumerate(alone.tolist()) if off and found[sample]]
    samples.sort(key=lambda sample: float(agreement[sample]))
    if not samples or len(samples) > len(labels) // 4:
        return
    worst = samples[0]
    yield LABEL_SUSPECT.issue(
        f"The gradient of sample {worst} has the mean cosine {float(agreement[worst]):.2f}, limit "
        f"{bound:.2f}, to the other samples of its label {int(labels[worst])}; {len(samples)} of "
        f"{len(labels)} samples are such.",
        where=Location(sample=worst),
        agreement=Quantity(value=float(agreement[worst]), limit=bound),
        samples=_listed(samples),
    )


def _unusual(lengths: Sequence[float], losses: Tensor | None, options: TraceOptions) -> list[bool]:
    """Return which samples have a long gradient and, where losses are known, a high loss."""
    if not math.isfinite(sum(lengths)):
        return []
    limit = options.label_norm * median_low(lengths)
    if max(lengths) <= limit:
        return []
    found = [length > limit for length in lengths]
    if losses is None:
        return found
    known: list[float] = losses.tolist()
    middle = median_low(known)
    return [long and loss > middle for long, loss in zip(found, known, strict=True)]


def honesty_issues(study: StudyResult) -> Iterator[Issue]:
    """Yield what the result does not know."""
    if study.missing:
        name, reason = next(iter(study.missing.items()))
        yield COVERAGE_INCOMPLETE.issue(
            f"{len(study.missing)} parameters are left out, limit 0; first {name}: {reason}.",
            where=Location(parameter=name),
            parameters=Quantity(value=len(study.missing), limit=0),
        )
    if study.repaired:
        name, reason = next(iter(study.repaired.items()))
        yield SELF_CHECK_FAILED.issue(
            f"The rules for {len(study.repaired)} parameters were not used, limit 0; they were "
            f"found sample by sample. The first is {name}: {reason}.",
            where=Location(parameter=name),
            severity=Severity.INFO,
            parameters=Quantity(value=len(study.repaired), limit=0),
        )
    if not math.isfinite(study.batch_square):
        yield _not_finite(study)
    if study.coupled:
        yield SAMPLES_COUPLED.issue(
            f"{len(study.coupled)} layers normalise over the batch (first: {study.coupled[0]}), "
            "limit 0: samples are coupled, and the rows are a decomposition of this batch's "
            "gradient.",
            where=Location(module=study.coupled[0]),
            layers=Quantity(value=len(study.coupled), limit=0),
        )
    elif study.noisy:
        yield SAMPLES_COUPLED.issue(
            f"{len(study.noisy)} layers draw random numbers (first: {study.noisy[0]}), limit 0: "
            "the gradients are those of this draw.",
            where=Location(module=study.noisy[0]),
            layers=Quantity(value=len(study.noisy), limit=0),
        )
    yield from _weighing_issues(study.composition)


def _not_finite(study: StudyResult) -> Issue:
    squares = study.total
    if squares is not None and squares.dim() == 2:
        squares = squares.diagonal()
    odd = [] if squares is None else (~squares.isfinite()).nonzero().flatten().tolist()
    which = f"in {counted(len(odd), 'sample')}, limit 0 ({_listed(odd)}); " if odd else ""
    return COVERAGE_INCOMPLETE.issue(
        f"The gradient of the batch is not finite, or too long for a square; {which}nothing could "
        "be checked against autograd.",
        where=Location(sample=odd[0] if odd else None),
        severity=Severity.INFO,
        samples=Quantity(value=len(odd), limit=0),
    )


def _weighing_issues(loss: Composition | None) -> Iterator[Issue]:
    if loss is not None and loss.off:
        yield SAMPLES_COUPLED.issue(
            "The loss is neither sum nor mean of the losses of two parts of the batch: their mean "
            f"is off by {loss.off:.2g} of it, limit {loss.limit:.2g}. It weighs or compares "
            "samples, and the rows are a decomposition of this batch's gradient.",
            where=Location(op="loss"),
            off=Quantity(value=loss.off, limit=loss.limit),
        )


def _listed(samples: list[int]) -> str:
    shown = ", ".join(str(sample) for sample in samples[:8])
    return shown if len(samples) <= 8 else f"{shown} and {len(samples) - 8} more"
