"""How a training loop is watched: the options of ``nabla.guard`` and ``[tool.nabla.guard]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypedDict

from nabla_core.binder import bind_field, closest, option_fields
from nabla_core.errors import UsageError
from nabla_core.options import option

if TYPE_CHECKING:
    from .holding import Holdable

__all__ = ["GuardArguments", "GuardOptions", "Mode", "OnNonFinite", "Shadow", "bind_options"]

Mode = Literal["light", "standard", "deep"]
"""``light`` measures losses, gradients and parameters once per step; ``standard`` also the range of
every leaf module's output and of its gradient; ``deep`` also the range of every op's result. In
each of them the first bad step is executed again to find its origin, unless ``explain`` is off."""

OnNonFinite = Literal["report", "stop", "skip"]
"""What to do with a step whose loss or gradients are not finite."""

Shadow = Literal["off", "sample", "always"]
"""When the forward pass is compared with float64: never, in a few early steps and every 400 steps,
or in every step; in mode light never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """How a loop is watched."""

    mode: Mode = option("standard", "how closely: light, standard or deep")
    modules: tuple[str, ...] = option(
        (), "globs for paths or classes of the modules to look into; empty for all"
    )
    exclude: tuple[str, ...] = option((), "globs for modules not to look into")
    operations: tuple[str, ...] = option(
        (), "globs for the ops of deep mode, such as aten::exp; each of their calls is an event"
    )
    every: int = option(1, "measure every this many steps", minimum=1)
    explain: bool = option(
        True, "execute the first bad step again to find its origin; no step is kept without it"
    )
    capture_source: bool = option(True, "name the user's line of what deep mode finds to be odd")
    extreme_value_threshold: float = option(
        1e4, "absolute value from which deep mode notes an op's result as an event", minimum=0
    )
    contracts: tuple[str, ...] = option(
        (), "names of configured contracts that must be held; not evaluated without them"
    )
    raise_on_failure: bool = option(False, "end the run at the first broken contract")
    max_events: int = option(0, "events kept; 0 for max-events of [tool.nabla]", minimum=0)
    max_issues: int = option(0, "distinct issues kept; 0 for max-issues of [tool.nabla]", minimum=0)
    shadow: Shadow = option(
        "sample", "compare the forward pass with float64: off, sample (every 400 steps) or always"
    )
    on_nonfinite: OnNonFinite = option(
        "report", "report a step that is not finite, stop before it, or skip it"
    )


class GuardArguments(TypedDict, total=False):
    """The fields of :class:`GuardOptions` as keyword arguments of ``nabla.guard``."""

    mode: Mode
    modules: Sequence[str]
    exclude: Sequence[str]
    operations: Sequence[str]
    every: int
    explain: bool
    capture_source: bool
    extreme_value_threshold: float
    contracts: Sequence[str | Holdable]
    raise_on_failure: bool
    max_events: int
    max_issues: int
    shadow: Shadow
    on_nonfinite: OnNonFinite


def bind_options(base: GuardOptions, given: Mapping[str, object]) -> GuardOptions:
    """Return ``base`` with the given options instead.

    Args:
        base: what the configuration says.
        given: options by the name of the argument.

    Raises:
        UsageError: an option is unknown, of the wrong type or out of range; all mistakes at once.
    """
    known = {found.name: found for found in option_fields(GuardOptions).values()}
    values: dict[str, object] = {}
    mistakes: list[str] = []
    for name, value in given.items():
        if name not in known:
            hint = closest(name, list(known)) or f"; the options are {', '.join(known)}"
            mistakes.append(f"guard({name}=...): unknown option{hint}")
            continue
        values[name], mistake = bind_field(GuardOptions, known[name], value, f"guard({name})")
        if mistake is not None:
            mistakes.append(mistake)
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return replace(base, **values)  # type: ignore[arg-type]
