"""``nabla bench overhead``: what watching costs, as a ratio to the bare loop beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from nabla_core.errors import UsageError

from .costs import WorkloadCost

if TYPE_CHECKING:
    import torch

    from .rounds import Rounds

__all__ = ["BUDGET_S", "Overhead", "OverheadOptions", "run_overhead"]

BUDGET_S = 75.0
"""Seconds after which no further round begins, unless one asks for more."""

Progress = Callable[[int, str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadOptions:
    """What to measure.

    Attributes:
        workloads: names; all when empty.
        modes: names; all when empty.
        rounds: measurements of each pair, at most.
        device: name of a torch device.
        budget_s: seconds of the clock on the wall, shared by the workloads; no round begins that
            would not end in the share of its workload. The first one always does.
    """

    workloads: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    rounds: int = 5
    device: str = "cpu"
    budget_s: float = BUDGET_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What watching costs.

    Attributes:
        options: what was measured.
        workloads: one entry per workload.
        not_evaluated: mode to the reason why it was not measured.
    """

    options: OverheadOptions
    workloads: tuple[WorkloadCost, ...]
    not_evaluated: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0, or 4 when nothing was measured."""
        return 0 if any(workload.costs for workload in self.workloads) else 4

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "benchmark": "overhead",
            "device": self.options.device,
            "rounds": self.options.rounds,
            "budget_s": self.options.budget_s,
            "threads": 1,
            "workloads": [workload.to_dict() for workload in self.workloads],
            "not_evaluated": dict(self.not_evaluated),
        }

    def format(self) -> str:
        """Return the tables that :meth:`print` shows."""
        from nabla_core.reporters.style import Style

        from .overhead_text import overhead_text

        return overhead_text(self, Style())

    def print(self) -> None:
        """Print the tables to standard output."""
        print(self.format(), end="")


def run_overhead(
    options: OverheadOptions | None = None, *, progress: Progress | None = None
) -> Overhead:
    """Measure what watching costs, each block of watched steps between two of bare ones.

    Args:
        options: what to measure; by default everything on the processor.
        progress: called before each block with the number of the round (from 1), the workload and
            the mode.

    Raises:
        UsageError: a name is unknown, ``rounds`` is below 1, ``budget_s`` is no positive number,
            or there is no such device.
    """
    from .modes import MODES
    from .rounds import Rounds
    from .surroundings import own_surroundings
    from .workloads import WORKLOADS

    options = options or OverheadOptions()
    if options.rounds < 1:
        raise UsageError(f"overhead: rounds = {options.rounds}: needs at least 1")
    if not options.budget_s > 0.0:
        raise UsageError(f"overhead: budget_s = {options.budget_s}: needs to be above 0 seconds")
    workloads = _chosen(WORKLOADS, options.workloads, "workload")
    modes = _chosen(MODES, options.modes, "mode")
    device = _device(options.device)
    missing = {mode.name: mode.missing for mode in modes if mode.missing}
    there = [mode for mode in modes if mode.name not in missing]
    ends_s, found = time.monotonic() + options.budget_s, []
    with own_surroundings():
        for place, workload in enumerate(workloads):
            now_s = time.monotonic()
            share_s = (ends_s - now_s) / (len(workloads) - place)
            rounds = Rounds(workload, there, device)
            tell = progress or _tell_nobody
            found.append(_measured(rounds, options.rounds, now_s + share_s, tell))
    return Overhead(options=options, workloads=tuple(found), not_evaluated=missing)


class Named(Protocol):
    """What is chosen by its name."""

    @property
    def name(self) -> str:
        """The name."""


NamedT = TypeVar("NamedT", bound=Named)


def _chosen(known: Sequence[NamedT], names: Iterable[str], kind: str) -> list[NamedT]:
    from nabla_core.binder import closest

    by_name = {item.name: item for item in known}
    wanted = list(dict.fromkeys(names)) or list(by_name)
    for name in wanted:
        if name not in by_name:
            raise UsageError(
                f"--{kind} {name}: choose from {', '.join(by_name)}{closest(name, list(by_name))}"
            )
    return [by_name[name] for name in wanted]


def _device(name: str) -> torch.device:
    import torch

    try:
        device = torch.device(name)
        torch.empty(1, device=device)
        if device.type != "cpu" and not hasattr(getattr(torch, device.type, None), "synchronize"):
            raise RuntimeError("it has no clock to wait for")
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).strip().partition("\n")[0]
        raise UsageError(f"--device {name}: torch cannot use it here ({first})") from error
    return device


def _measured(rounds: Rounds, most: int, ends_s: float, tell: Progress) -> WorkloadCost:
    """Measure until there are enough rounds, or until another one would not end in time."""
    longest_s, done = 0.0, 0
    while done < most and (not done or time.monotonic() + longest_s <= ends_s):
        begun_s, done = time.monotonic(), done + 1
        rounds.measure(partial(tell, done))
        longest_s = max(longest_s, time.monotonic() - begun_s)
    return rounds.cost()


def _tell_nobody(round: int, workload: str, mode: str) -> None:
    """Nobody is waiting."""
