"""``nabla bench``: the suites by which nabla measures itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from nabla_core.cli.state import ShellState
from nabla_core.errors import UsageError

from .overhead import BUDGET_S

if TYPE_CHECKING:
    from .overhead import OverheadOptions

__all__ = ["bench"]

_FORMAT = click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="FMT[=PATH]",
    help="console or json, repeatable; with =PATH into a file.",
)


class _Size(TypedDict):
    rounds: int
    budget_s: float
    device: str


@click.group("bench")
def bench() -> None:
    """Measure nabla itself: planted bugs that it must find, and what watching costs."""


@bench.command("bugbench")
@click.option(
    "--only", multiple=True, metavar="NAME", help="A bug, a rule, or the beginning of its ID."
)
@click.option("--seed", default=0, show_default=True, help="Of the data of every program.")
@click.option("--list", "as_list", is_flag=True, help="List the planted bugs and run none.")
@_FORMAT
@click.pass_obj
def bugbench(
    state: ShellState, only: tuple[str, ...], seed: int, as_list: bool, formats: tuple[str, ...]
) -> int:
    """Plant bugs in small programs, and see whether nabla finds each and nothing in its twin.

    Every program is run twice: with one fault, and as its healthy twin. Those whose parts of nabla
    are not installed are not evaluated. Nothing of this folder is read or written.

    Exits with 1 when a bug is missed or named by a wrong rule, when a twin raises an alarm or when
    a program crashes, and with 4 when nothing was evaluated.
    """
    from .bugbench import chosen_bugs, run_bugbench
    from .bugbench_text import bugbench_text

    if as_list:
        for bug in chosen_bugs(only):
            click.echo(f"{bug.rule:<7} {bug.name:<23} {bug.summary}")
        return state.plugin_exit_code(0)
    targets = _targets(formats)
    with _Line() as line:
        result = run_bugbench(only, seed=seed, progress=lambda bug: line(f"bugbench {bug.name}"))
    _deliver(targets, result.to_dict(), lambda: bugbench_text(result, state.style()))
    return state.plugin_exit_code(result.exit_code)


@bench.command("overhead")
@click.option("--workload", multiple=True, metavar="NAME", help="mlp, cnn or transformer.")
@click.option(
    "--mode",
    multiple=True,
    metavar="NAME",
    help="light, standard, deep, audit, watch or capture.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Of measurements, at most.",
)
@click.option(
    "--budget-s",
    type=click.FloatRange(min=0.0, min_open=True),
    default=BUDGET_S,
    show_default=True,
    help="Seconds after which no further round begins.",
)
@click.option("--device", default="cpu", show_default=True, help="A device of torch, e.g. cuda.")
@_FORMAT
@click.pass_obj
def overhead(
    state: ShellState,
    workload: tuple[str, ...],
    mode: tuple[str, ...],
    formats: tuple[str, ...],
    **size: Unpack[_Size],
) -> int:
    """Measure what a watched step costs, in steps of the bare loop beside it.

    Blocks of watched and of bare steps alternate, on one thread; shown are median and quartiles of
    their ratios. The bare loop is measured against itself, too: what lies within that spread is
    marked as within the noise. The first steps, in which a loop is got to know, are counted apart.
    The workloads share the time of --budget-s; each is measured in one round at least.

    Exits with 4 when nothing was measured.
    """
    from .overhead import OverheadOptions, run_overhead
    from .overhead_text import overhead_text

    targets = _targets(formats)
    options = OverheadOptions(workloads=workload, modes=mode, **size)
    with _Line() as line:
        tell = line.round_of(options) if state.verbose >= 0 else None
        result = run_overhead(options, progress=tell)
    _deliver(targets, result.to_dict(), lambda: overhead_text(result, state.style()))
    return state.plugin_exit_code(result.exit_code)


def _targets(formats: tuple[str, ...]) -> list[tuple[str, Path | None]]:
    from nabla_core.files import check_writable

    targets = []
    for text in formats or ("console",):
        name, _, path = text.partition("=")
        if name not in ("console", "json"):
            raise UsageError(f"--format {name}: choose console or json")
        if path:
            check_writable(Path(path))
        targets.append((name, Path(path).absolute() if path else None))
    return targets


def _deliver(
    targets: list[tuple[str, Path | None]], values: dict[str, object], text: Callable[[], str]
) -> None:
    from nabla_core.files import write_text

    for name, path in targets:
        shown = text() if name == "console" else json.dumps(values, indent=2) + "\n"
        if path is None:
            click.echo(shown, nl=False)
        else:
            write_text(path, click.unstyle(shown))


class _Line:
    """One line on standard error that says what is being done, where a person can see it."""

    def __init__(self) -> None:
        self._is_shown = not sys.stderr.closed and sys.stderr.isatty()
        self._told = ""

    def __call__(self, text: str) -> None:
        if self._is_shown:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)

    def round_of(self, options: OverheadOptions) -> Callable[[int, str, str], None]:
        """Return what tells of a long measurement: without a terminal one line for each round."""

        def tell(number: int, workload: str, mode: str) -> None:
            place = f"overhead {workload}, round {number} of {options.rounds}"
            if not self._told and not sys.stderr.closed:  # names and device have been checked
                most = f"at most {options.rounds} rounds or about {options.budget_s:g} s"
                click.echo(f"nabla: measuring {most}", err=True)
            self(f"{place}: {mode}")
            if not self._is_shown and place != self._told and not sys.stderr.closed:
                click.echo(f"nabla: {place}", err=True)
            self._told = place

        return tell

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        self("")
