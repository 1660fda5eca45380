"""``nabla.check.operator``: everything that is known about testing one operator, in one call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Unpack

import torch

from .evidence.failure import CheckCall
from .examination import Examination
from .inputs import rng
from .inputs.callee import Callee
from .inputs.evaluation import Evaluator
from .inputs.operands import Operands
from .options import Level, OperatorKeywords, OperatorOptions
from .result import CheckResult
from .schedule import run_schedule
from .verdicts import settle

__all__ = ["operator"]


def operator(
    *,
    candidate: Callable[..., object],
    inputs: object,
    reference: Callable[..., object] | None = None,
    level: Level = "full",
    seed: int | None = None,
    **options: Unpack[OperatorKeywords],
) -> CheckResult:
    """Check the derivatives of an operator, with or without a reference.

    Args:
        candidate: a function, ``autograd.Function.apply``, custom operator, module or bound method.
            A module's parameters are checked too; its state stays untouched.
        inputs: list (or mapping by keyword) of tensors, recipes of :func:`nabla_check.tensor`,
            nests of them, and other arguments. Tensors with ``requires_grad`` are differentiated
            and the others left alone; when none has it, all floating ones are differentiated.
        reference: trusted implementation with the same arguments; it defines the truth.
        level: ``first-order`` (gradient, memory, repetition) or ``full``.
        seed: makes all random numbers repeatable; drawn and reported by default.
        **options: see :class:`nabla_check.OperatorOptions`.

    Returns:
        The verdicts, and what could not be decided. Global random generators are left as they were.

    Raises:
        UsageError: an option, an input or the candidate cannot be used, or the reference raises on
            the given inputs although the candidate takes them.

    Source: how each test decides is described in the README of nabla-check.
    """
    chosen = OperatorOptions.of(level, options)
    number = int.from_bytes(os.urandom(4), "big") >> 1 if seed is None else seed
    before = rng.capture(with_numpy=True)
    try:
        start = rng.seeded(number, before)
        exam = _examination(candidate, inputs, reference, chosen, (number, start))
        run_schedule(exam)
    finally:
        rng.restore(before)
    call = CheckCall(
        candidate=candidate, reference=reference, inputs=inputs, options=chosen, seed=number
    )
    return settle(exam, call)


def _examination(
    candidate: Callable[..., object],
    inputs: object,
    reference: Callable[..., object] | None,
    options: OperatorOptions,
    randomness: tuple[int, rng.RandomState],
) -> Examination:
    seed, start = randomness
    generator = torch.Generator().manual_seed(seed)
    callee = Callee(candidate)
    operands = Operands.gather(callee, inputs, options.kwargs, generator)
    rival = None
    if reference is not None:
        rival = Evaluator(Callee(reference, _shared_module(callee, reference)), operands, start)
    return Examination(
        candidate=Evaluator(callee, operands, start),
        reference=rival,
        given=operands,
        operands=operands,
        resolution=None,
        options=options,
        generator=generator,
        seed=seed,
        deadline_s=None if options.budget_s is None else time.monotonic() + options.budget_s,
    )


def _shared_module(callee: Callee, reference: Callable[..., object]) -> torch.nn.Module | None:
    """A reference may read the candidate module's parameters: let it see the swapped ones."""
    own = Callee(reference).module
    return callee.module if own is None else own
