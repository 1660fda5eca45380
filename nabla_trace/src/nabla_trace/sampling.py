"""``nabla.trace.samples``: the gradient of every sample of a batch, compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict, Unpack, get_args

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from nabla_core.errors import UsageError

from .batches import Batch, LossFunction, read_batch
from .delivery import deliver, trace_options
from .ghost.bank import BankOptions, Measure
from .ghost.forward_pass import Subject
from .ghost.study import Study, StudyResult
from .gram_facts import GramFacts
from .projections import project
from .rules import honesty
from .rules import samples as sample_rules
from .sample_verdicts import honesty_issues, label_suspects, norm_issues, pair_issues
from .samples_result import Method, SamplesResult

__all__ = ["SampleOptions", "choose_parameters", "samples"]

_MEASURES: dict[str, Measure] = {"exact": "pairs", "sketch": "sketch", "norms": "norms"}
_BYTES_PER_ELEMENT = 16  # a block, its product and their temporaries


class SampleOptions(TypedDict, total=False):
    """Keyword arguments of :func:`samples`.

    Attributes:
        method: ``exact`` (all pairs), ``sketch`` (all pairs, about 3 % off), ``norms`` (lengths
            only), ``jvp`` (inner products with the mean gradient, for models that no rule covers);
            ``auto`` is exact.
        parameters: parameters, names or globs of names; default: all that are trained.
        every_layer: keep the part of each parameter.
        budget_mb: memory for temporaries.
        sketch_size: length to which axes are projected by ``sketch``.
    """

    method: Method
    parameters: Iterable[Parameter | str] | None
    every_layer: bool
    budget_mb: float
    sketch_size: int


def samples(
    model: Module,
    loss_fn: LossFunction | None,
    batch: object,
    **options: Unpack[SampleOptions],
) -> SamplesResult:
    """Compare the gradients of all samples of a batch, at about the cost of one step.

    The gradient of sample ``i`` is that of its own loss in this batch, with this draw of random
    numbers. The result is checked against autograd; what no rule covers is computed sample by
    sample, and what cannot be computed is named. Model, ``.grad``, buffers and random generators
    are left as they were.

    Args:
        model: any module, in the mode in which it is to be looked at.
        loss_fn: ``loss_fn(output, targets)`` or ``loss_fn(output)``, per sample ``[N]``, or their
            mean or sum; ``None`` when the model returns its loss.
        batch: ``(inputs, targets)``, ``(input, input, ..., targets)``, a mapping, or one tensor.
        **options: see :class:`SampleOptions`.

    Raises:
        UsageError: the arguments do not fit together, or parameters are complex.
    """
    method = options.get("method", "auto")
    if method not in get_args(Method):
        raise UsageError(f"method={method!r}: use one of {', '.join(get_args(Method))}")
    parameters = choose_parameters(model, options.get("parameters"))
    taken = read_batch(model, loss_fn, batch)
    subject = Subject(model=model, parameters=parameters)
    if method == "jvp":
        return project(subject, taken, loss_fn)
    method = "exact" if method == "auto" else method
    study = Study(subject, taken, loss_fn, _bank_options(method, options)).run()
    return _judged(study, method, taken)


def choose_parameters(
    model: Module, wanted: Iterable[Parameter | str] | None = None
) -> dict[str, Tensor]:
    """Return the parameters to look at, by name.

    Args:
        model: whose parameters.
        wanted: parameters, names or globs; ``None`` for all that are trained.

    Raises:
        UsageError: one is not the model's, is not trained, is complex, or none is left.
    """
    from fnmatch import fnmatchcase

    if not isinstance(model, Module):
        raise UsageError(f"trace of a {type(model).__name__}: needs a torch.nn.Module")
    known = {name: p for name, p in model.named_parameters() if p.requires_grad}
    chosen = dict(known) if wanted is None else {}
    for entry in wanted or ():
        found = {
            name: p
            for name, p in known.items()
            if (fnmatchcase(name, entry) if isinstance(entry, str) else p is entry)
        }
        if not found:
            shown = repr(entry) if isinstance(entry, str) else f"of shape {tuple(entry.shape)}"
            raise UsageError(f"parameter {shown}: no trained parameter of the model is that")
        chosen.update(found)
    if not chosen:
        raise UsageError("the model has no parameter with requires_grad=True")
    complex_ones = [name for name, p in chosen.items() if p.is_complex()]
    if complex_ones:
        raise UsageError(
            f"parameter {complex_ones[0]} is complex: per-sample gradients are made for real "
            "parameters only; leave it out with parameters="
        )
    return dict(chosen)


def _bank_options(method: str, options: SampleOptions) -> BankOptions:
    budget_mb, size = options.get("budget_mb", 64.0), options.get("sketch_size", 32)
    if not budget_mb > 0 or size < 1:
        raise UsageError(f"budget_mb={budget_mb}, sketch_size={size}: both must be above zero")
    return BankOptions(
        measure=_MEASURES[method],
        budget=max(1, int(budget_mb * 2**20 / _BYTES_PER_ELEMENT)),
        every_layer=options.get("every_layer", False),
        sketch_size=size,
    )


def _judged(study: StudyResult, method: Method, batch: Batch) -> SamplesResult:
    pairs = method != "norms"
    total, labels = study.total, _labels(batch)
    facts = GramFacts(total) if total is not None and pairs else None
    options, found = trace_options(), list(honesty_issues(study))
    if total is not None:
        lengths = total.clamp(min=0).sqrt().tolist() if facts is None else facts.lengths
        found += norm_issues(lengths, options)
    if facts is not None and method == "exact":
        found += pair_issues(facts, options, batch.tensors())
        if labels is not None:
            losses, labels_there = study.losses, labels.to(facts.gram.device)
            found += label_suspects(facts, labels_there, losses, options)
    return SamplesResult(
        samples=study.samples,
        method=method,
        gram=total if pairs else None,
        squares=total if facts is None else facts.gram.diagonal(),
        layers=study.layers,
        coverage=study.coverage,
        missing=study.missing,
        labels=labels,
        losses=study.losses,
        batch_norm=study.batch_square**0.5,
        reduction=study.reduction,
        issues=deliver(found, (*sample_rules.RULES, *honesty.RULES)),
    )


def _labels(batch: Batch) -> Tensor | None:
    """Return the targets if they are classes: integers, one per sample, not all different."""
    targets = batch.targets
    if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.dim() != 1:
        return None
    if len(targets) != batch.samples or targets.dtype is torch.bool:
        return None
    return targets
