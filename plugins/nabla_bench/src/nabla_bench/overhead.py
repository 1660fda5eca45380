"""``nabla bench overhead``: what watching costs, as a ratio to the bare loop beside it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from nabla_core.errors import UsageError

if TYPE_CHECKING:
    import torch

    from .modes import WatchMode
    from .timing import Block, Spread
    from .workloads import Workload

__all__ = ["Cost", "Overhead", "OverheadOptions", "WorkloadCost", "run_overhead"]

Progress = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadOptions:
    """What to measure.

    Attributes:
        workloads: names; all when empty.
        modes: names; all when empty.
        rounds: measurements of each pair.
        device: name of a torch device.
    """

    workloads: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    rounds: int = 5
    device: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one mode costs on one workload.

    Attributes:
        mode: its name.
        ratio: time of a watched step over that of a bare step, once the loop is known.
        first_steps: what the first steps cost besides, in bare steps.
        is_hidden: the ratio cannot be told from that of the bare loop to itself.
    """

    mode: str
    ratio: Spread
    first_steps: float
    is_hidden: bool

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "mode": self.mode,
            "ratio": self.ratio.to_dict(),
            "first_steps": round(self.first_steps, 2),
            "hidden_by_noise": self.is_hidden,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCost:
    """What all modes cost on one workload.

    Attributes:
        workload: its name.
        summary: what it is.
        bare_step_s: time of a bare step.
        control: ratio of the bare loop to itself: the noise.
        costs: one per mode.
    """

    workload: str
    summary: str
    bare_step_s: Spread
    control: Spread
    costs: tuple[Cost, ...]

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "workload": self.workload,
            "bare_step_s": {
                name: float(f"{getattr(self.bare_step_s, name):.4g}")
                for name in ("median", "lower", "upper")
            },
            "control": self.control.to_dict(),
            "costs": [cost.to_dict() for cost in self.costs],
        }


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
        progress: called with the workload and the mode before each block.

    Raises:
        UsageError: a name is unknown, ``rounds`` is below 1, or there is no such device.
    """
    from .modes import MODES
    from .surroundings import own_surroundings
    from .workloads import WORKLOADS

    options = options or OverheadOptions()
    if options.rounds < 1:
        raise UsageError(f"overhead: rounds = {options.rounds}: needs at least 1")
    workloads = _chosen(WORKLOADS, options.workloads, "workload")
    modes = _chosen(MODES, options.modes, "mode")
    device = _device(options.device)
    missing = {mode.name: mode.missing for mode in modes if mode.missing}
    there = [mode for mode in modes if mode.name not in missing]
    tell = progress or _tell_nobody
    with own_surroundings():
        found = [
            _measured(workload, there, (device, options.rounds), tell) for workload in workloads
        ]
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
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).strip().partition("\n")[0]
        raise UsageError(f"--device {name}: torch cannot use it here ({first})") from error
    return device


def _measured(
    workload: Workload,
    modes: Sequence[WatchMode],
    size: tuple[torch.device, int],
    tell: Progress,
) -> WorkloadCost:
    """Interleave: bare, mode, bare, mode, …, bare; the control is one of the modes."""
    from .modes import CONTROL
    from .timing import Spread, timed_block

    device, rounds = size
    ratios: dict[str, list[float]] = {mode.name: [] for mode in (CONTROL, *modes)}
    firsts: dict[str, list[float]] = {name: [] for name in ratios}
    bare_s: list[float] = []
    timed_block(workload, CONTROL, device)  # the first of all makes what later ones find made
    for _ in range(rounds):
        before = timed_block(workload, CONTROL, device)
        for mode in (CONTROL, *modes):
            tell(workload.name, mode.name)
            block = timed_block(workload, mode, device)
            after = timed_block(workload, CONTROL, device)
            step_s = (before.step_s + after.step_s) / 2
            ratios[mode.name].append(block.step_s / step_s)
            firsts[mode.name].append(_besides(block, step_s))
            bare_s.append(before.step_s)
            before = after
    spreads = {name: Spread.of(found) for name, found in ratios.items()}
    control = spreads[CONTROL.name]
    return WorkloadCost(
        workload=workload.name,
        summary=workload.summary,
        bare_step_s=Spread.of(bare_s),
        control=control,
        costs=tuple(
            _cost(mode.name, spreads[mode.name], firsts[mode.name], control) for mode in modes
        ),
    )


def _cost(mode: str, ratio: Spread, firsts: Sequence[float], control: Spread) -> Cost:
    return Cost(
        mode=mode,
        ratio=ratio,
        first_steps=max(0.0, statistics.median(firsts)),
        is_hidden=ratio.overlaps(control),
    )


def _besides(block: Block, bare_step_s: float) -> float:
    """What the first steps cost more than later ones of the same block, in bare steps."""
    return (block.first_s - block.first_steps * block.step_s) / bare_step_s


def _tell_nobody(workload: str, mode: str) -> None:
    """Nobody is waiting."""
