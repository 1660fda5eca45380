"""``nabla.lint``: judge a finished run by its log or its records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nabla_core.errors import UsageError
from nabla_core.host import default_host
from nabla_core.records import StepRecord

from .combining import lint_path
from .engine import Hints, lint_records, run_config
from .linting import LintRequest
from .run_report import RunReport

__all__ = ["lint"]


def lint(
    source: str | Path | Iterable[StepRecord],
    *,
    hints: Hints | None = None,
    mute: Iterable[str] = (),
) -> RunReport:
    """Judge a finished run by its log or its records.

    Args:
        source: a log, a folder of logs or a pattern, or the records of a run. Of several runs each
            is judged apart; the report then holds a table of them.
        hints: what is declared about the run: loss, classes, batch_size, accumulate,
            planned_steps, optimizer, log_every.
        mute: rules that are not wanted: IDs, names, prefixes or the codes of other tools.

    Raises:
        UsageError: the source is of the wrong type.
        InputError: there is no log, or it cannot be read, or holds no loss.
        ConfigError: a hint is unknown or of the wrong type.
    """
    config = run_config(default_host(), hints, mute)
    if isinstance(source, (str, Path)):
        return lint_path(str(source), LintRequest(config=config))
    if not isinstance(source, Iterable):
        raise UsageError(
            f"lint({type(source).__name__}): needs the path of a log, or records of its steps"
        )
    return lint_records(source, config=config)
