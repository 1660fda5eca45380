"""``nabla.trace.coordinate_check``: does what a step changes depend on the width of the model?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from nabla_core.errors import UsageError

from .delivery import deliver, trace_options
from .ghost.rng import kept_rng
from .rules import width as width_rules
from .width_result import LayerGrowth, WidthResult
from .width_verdicts import width_issues

__all__ = ["CoordinateOptions", "coordinate_check"]

Build = Callable[[int], tuple[Module, Optimizer]]
Loss = Callable[[Module], Tensor]

_FEWEST = 3
_SPAN = 4
_TINY = 1e-6


class CoordinateOptions(TypedDict, total=False):
    """Keyword arguments of :func:`coordinate_check`.

    Attributes:
        widths: widths to build; at least three, the largest at least four times the smallest.
        steps: optimizer steps after which the change is measured.
        seeds: runs per width.
    """

    widths: Sequence[int]
    steps: int
    seeds: int


def coordinate_check(build: Build, loss: Loss, **options: Unpack[CoordinateOptions]) -> WidthResult:
    """Train narrow and wide models for a few steps; compare how far each layer's output moves.

    The global random state is left as it was.

    Args:
        build: ``build(width)`` returns a fresh model and its optimizer.
        loss: ``loss(model)`` runs the model on one batch, the same at every call, and returns the
            loss.
        **options: see :class:`CoordinateOptions`.

    Raises:
        UsageError: too few widths, or the models have no layer in common.

    Source: the coordinate check of Yang et al. 2022 (arXiv 2203.03466), with a fitted slope and its
    error instead of a plot.
    """
    widths = sorted(set(options.get("widths", (32, 64, 128, 256))))
    steps, seeds = options.get("steps", 3), options.get("seeds", 2)
    _check(widths, steps, seeds)
    runs: dict[int, list[dict[str, float]]] = {width: [] for width in widths}
    with kept_rng():
        for width in widths:
            for seed in range(seeds):
                torch.manual_seed(seed)
                runs[width].append(_changes(*build(width), loss, steps))
    names = [n for n in runs[widths[0]][0] if all(n in run for r in runs.values() for run in r)]
    if not names:
        raise UsageError(
            "coordinate_check: the models have no layer with a weight matrix in common; give their "
            "layers the same names at every width"
        )
    layers = tuple(
        LayerGrowth.fitted(name, widths, [[run[name] for run in runs[w]] for w in widths])
        for name in names
    )
    issues = deliver(list(width_issues(layers, trace_options())), width_rules.RULES)
    return WidthResult(widths=tuple(widths), steps=steps, layers=layers, issues=issues)


def _check(widths: Sequence[int], steps: int, seeds: int) -> None:
    if len(widths) < _FEWEST or widths[0] < 1 or widths[-1] < _SPAN * widths[0]:
        raise UsageError(
            f"coordinate_check(widths={widths}): a slope needs at least {_FEWEST} widths, the "
            f"largest at least {_SPAN} times the smallest"
        )
    if steps < 1 or seeds < 1:
        raise UsageError(f"coordinate_check(steps={steps}, seeds={seeds}): both must be above zero")


def _changes(model: Module, optimizer: Optimizer, loss: Loss, steps: int) -> dict[str, float]:
    """Return how far the output of each layer has moved, as a root mean square."""
    first: dict[str, Tensor] = {}
    with _outputs(model, first), torch.no_grad(), kept_rng():
        loss(model)
    for _ in range(steps):
        optimizer.zero_grad()
        with kept_rng():  # the same draws of dropout at every step
            loss(model).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    last: dict[str, Tensor] = {}
    with _outputs(model, last), torch.no_grad(), kept_rng():
        loss(model)
    return {
        name: _moved(before, last[name])
        for name, before in first.items()
        if name in last and last[name].shape == before.shape
    }


def _moved(before: Tensor, after: Tensor) -> float:
    size = float(torch.linalg.vector_norm(after - before, dtype=torch.float64))
    scale = float(torch.linalg.vector_norm(before, dtype=torch.float64))
    if math.isfinite(size) and size <= _TINY * scale:
        return 0.0  # rounding
    return size / math.sqrt(max(1, before.numel()))


@contextmanager
def _outputs(model: Module, found: dict[str, Tensor]) -> Iterator[None]:
    """Keep the first output of every module with a matrix of weights."""

    def tap(name: str) -> Callable[[Module, object, object], None]:
        def hook(module: Module, args: object, output: object) -> None:
            value = output[0] if isinstance(output, tuple) and output else output
            if isinstance(value, Tensor) and value.is_floating_point():
                found.setdefault(name, value.detach().clone())

        return hook

    handles = [
        module.register_forward_hook(tap(name or "model"))
        for name, module in model.named_modules()
        if any(weight.dim() > 1 for weight in module.parameters(recurse=False))
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
