"""``nabla.trace.losses``: which loss fights which."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import TracebackType
from typing import Literal, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn import Module

from nabla_core.errors import UsageError
from nabla_core.issue import Issue
from nabla_core.report import Section
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from .delivery import deliver, trace_options
from .loss_grams import gram_of, grams_at, leaves_of, shared_rows
from .loss_result import LossReport
from .loss_verdicts import dead_losses, loss_issues, worsened_losses
from .rules import losses as loss_rules
from .views.loss_tables import layer_lines, loss_lines

__all__ = ["Level", "LossTrace", "LossTraceOptions", "gradient", "losses"]

Level = Literal["progress", "representation", "layers"]

_LATEST: ContextVar[LossTrace | None] = ContextVar("nabla_trace_losses", default=None)


class LossTraceOptions(TypedDict, total=False):
    """Keyword arguments of :func:`losses`.

    Attributes:
        shared: the tensor at which all losses part; makes ``layers`` cheaper, and is what
            ``representation`` looks at.
        weights: name → factor of each loss in the total; 1 when left out.
        level: ``progress`` compares the losses before and after the step, ``representation`` the
            gradients at ``shared``, ``layers`` the gradients at each parameter. By default the
            cheapest that the other arguments allow.
        recompute: returns the losses again; for ``progress``.
    """

    shared: Tensor | None
    weights: Mapping[str, float] | None
    level: Level | None
    recompute: Callable[[], Mapping[str, Tensor]] | None


class LossTrace(ResultMixin):
    """Gradients of several losses; a context manager around the user's own backward.

    Keeps ``K x K`` numbers per parameter and no gradient: there is nothing to release.

    Attributes:
        level: see :class:`LossTraceOptions`.
        losses: names of the losses.
        weights: factor of each.
        layers: name of each parameter → inner products ``[K, K]``, without weights.
        issues: the verdicts.
        changes: name → change of the loss through the step, for ``progress``.
        undecided: why there is no verdict, if so.
    """

    fail_on = Severity.HIGH

    def __init__(
        self,
        given: Mapping[str, Tensor],
        parameters: Mapping[str, Tensor],
        level: Level,
        options: LossTraceOptions,
    ) -> None:
        self.level: Level = level
        self.losses = tuple(given)
        self.weights = {
            name: float((options.get("weights") or {}).get(name, 1.0)) for name in given
        }
        self.layers: dict[str, Tensor] = {}
        self.issues = ()
        self.changes: dict[str, float] = {}
        self.undecided = ""
        self._parameters = {id(leaf): name for name, leaf in parameters.items()}
        self._before = {name: float(loss.detach()) for name, loss in given.items()}
        self._recompute = options.get("recompute")
        self._whole = torch.zeros(len(given), len(given), dtype=torch.float64)
        if level != "progress":
            self._measure(given, parameters, options.get("shared"))

    def __enter__(self) -> LossTrace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.level == "progress" and error is None:
            self._look_again()

    @property
    def gram(self) -> Tensor:
        """Inner products ``[K, K]`` over all parameters (or at ``shared``), without weights."""
        return self._whole

    @property
    def layer_grams(self) -> list[Tensor]:
        """Values of :attr:`layers`, in the order of the parameters."""
        return list(self.layers.values())

    def report(self, parameter: Tensor | None = None, name: str = "") -> LossReport:
        """Return the geometry at one parameter, or at all.

        Args:
            parameter: one of those that were traced; ``None`` for all together.
            name: how to call it.

        Raises:
            UsageError: it was not traced.
        """
        if parameter is None:
            gram, label, issues = self.gram, self._where, tuple(self.issues)
        else:
            known = self._parameters.get(id(parameter))
            if known is None or known not in self.layers:
                raise UsageError(
                    f"report of a parameter of shape {tuple(parameter.shape)}: it was not traced; "
                    "pass it in parameters= and use level='layers'"
                )
            gram, label, issues = self.layers[known], known, ()
        return LossReport(
            name=name or label, losses=self.losses, gram=self._weighted(gram), issues=issues
        )

    def release(self) -> None:
        """Forget what was measured. Never needed: no gradient is kept."""
        self.layers, self._parameters = {}, {}

    def format(self) -> str:
        """Return the heat map of layers and pairs of losses, and the verdicts."""
        if self.level == "progress":
            lines = [self.undecided] if self.undecided else []
            lines += [f"  {name}: {change:+.4g}" for name, change in self.changes.items()]
        else:
            lines = loss_lines(self._where, self.losses, self._weighted(self.gram))
            lines += layer_lines(self.losses, self.layers)
        return "\n".join([*lines, "", ResultMixin.format(self)])

    @property
    def rules_used(self) -> tuple[str, ...]:
        """IDs of the rules that judged it."""
        return tuple(rule.id for rule in loss_rules.RULES)

    def sections(self) -> tuple[Section, ...]:
        """Return what a report shows of it: losses against losses; none for ``progress``."""
        from .views.plots import loss_plots

        if self.level == "progress":
            return ()
        plots = loss_plots(self.losses, self._weighted(self.gram), self.layers)
        return (Section(title=f"Losses at {self._where}", plots=tuple(plots)),)

    # ------------------------------------------------------------------ private
    @property
    def _where(self) -> str:
        return "the shared representation" if self.level == "representation" else "all parameters"

    def _weighted(self, gram: Tensor) -> Tensor:
        factors = torch.tensor([self.weights[name] for name in self.losses], dtype=torch.float64)
        return gram * factors[:, None] * factors[None, :]

    def _measure(
        self, given: Mapping[str, Tensor], parameters: Mapping[str, Tensor], shared: Tensor | None
    ) -> None:
        scalars = list(given.values())
        if self.level == "representation" and shared is not None:
            self._whole = trunk = gram_of(shared_rows(scalars, shared))
            where = self._where
        else:
            self.layers = grams_at(scalars, parameters, shared)
            for gram in self.layers.values():
                self._whole = self._whole + gram
            both = [g for g in self.layers.values() if int((g.diagonal() > 0).sum()) > 1]
            trunk = sum(both, torch.zeros_like(self._whole))
            where = f"the {len(both)} parameters that several losses train"
        norms = dict(
            zip(self.losses, self._whole.diagonal().clamp(min=0).sqrt().tolist(), strict=True)
        )
        found = list(loss_issues(given, self._weighted(trunk), trace_options(), where))
        found += dead_losses(given, norms, self._where)
        self._judge(found)

    def _look_again(self) -> None:
        if self._recompute is None:
            self.undecided = "not evaluated: level='progress' needs recompute="
            return
        with torch.no_grad():
            after = {name: float(loss) for name, loss in self._recompute().items()}
        missing = [name for name in self.losses if name not in after]
        if missing:
            self.undecided = f"not evaluated: recompute() gave no loss {missing[0]!r}"
            return
        self.changes = {name: after[name] - self._before[name] for name in self.losses}
        self._judge(list(worsened_losses(self._before, after, self.weights)))

    def _judge(self, found: list[Issue]) -> None:
        self.issues = deliver(found, loss_rules.RULES)


def losses(
    given: Mapping[str, Tensor],
    parameters: Module | Iterable[Tensor] | None = None,
    **options: Unpack[LossTraceOptions],
) -> LossTrace:
    """Compare the gradients of several losses.

    The gradients are made at once, from the graph that the losses have now; the graph is kept for
    the user's own backward and no ``.grad`` is written.

    Args:
        given: name → scalar loss.
        parameters: what to look at; by default every leaf that the losses depend on.
        **options: see :class:`LossTraceOptions`.

    Raises:
        UsageError: a loss is no scalar, a weight has no loss, or an argument is missing.

    Example::

        with nabla.trace.losses({"ce": ce, "aux": aux}, parameters=model) as trace:
            (ce + 0.1 * aux).backward()
        trace.print()
    """
    level = _level(parameters, options)
    _check(given, level, options)
    chosen = {} if level != "layers" else _named(parameters, given)
    trace = LossTrace(dict(given), chosen, level, options)
    _LATEST.set(trace)
    return trace


def gradient(parameter: Tensor, name: str = "") -> LossReport:
    """Return the report of a parameter from the latest :func:`losses`.

    Raises:
        UsageError: nothing was traced, or not this parameter.
    """
    trace = _LATEST.get()
    if trace is None:
        raise UsageError("gradient(): there was no nabla.trace.losses before")
    return trace.report(parameter, name)


def _level(parameters: object, options: LossTraceOptions) -> Level:
    level = options.get("level")
    if level is not None:
        return level
    if options.get("recompute") is not None:
        return "progress"
    return "layers" if parameters is not None or options.get("shared") is None else "representation"


def _check(given: Mapping[str, Tensor], level: Level, options: LossTraceOptions) -> None:
    if level not in ("progress", "representation", "layers"):
        raise UsageError(f"level={level!r}: use progress, representation or layers")
    if len(given) < 1:
        raise UsageError("losses({}): name at least one loss")
    for name, loss in given.items():
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise UsageError(f"loss {name!r} is {shape}: it must be a scalar tensor")
    for name, weight in (options.get("weights") or {}).items():
        if name not in given or not math.isfinite(weight):
            known = ", ".join(given)
            raise UsageError(f"weights[{name!r}] = {weight}: needs a finite factor of {known}")
    if level == "representation" and options.get("shared") is None:
        raise UsageError("level='representation' needs shared=, the tensor at which losses part")


def _named(
    parameters: Module | Iterable[Tensor] | None, given: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    if parameters is None:
        return leaves_of(list(given.values()))
    if isinstance(parameters, Module):
        return {n: p for n, p in parameters.named_parameters() if p.requires_grad}
    listed = list(parameters)
    wrong = [entry for entry in listed if not isinstance(entry, Tensor) or not entry.requires_grad]
    if wrong:
        raise UsageError("parameters: every entry must be a tensor with requires_grad=True")
    return {f"parameter {index} {tuple(leaf.shape)}": leaf for index, leaf in enumerate(listed)}
