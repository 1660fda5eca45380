"""Models named on the command line: ``file.py:function`` or ``module:function``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from torch.nn import Module

from nabla_core.errors import InputError, UsageError
from nabla_core.report import Report, Section
from nabla_core.user_code import load_file, load_module

from .entrance import precision
from .plots import precision_ladder
from .result import PrecisionReport
from .rules import RULES

if TYPE_CHECKING:
    from nabla_core.session import Session

    from .reference import LossFunction

__all__ = ["audit_target", "built_by"]

_KEYS = ("model", "inputs", "loss_fn")
Built = tuple[Module, object, "LossFunction | None"]


def audit_target(
    target: str, dtypes: Sequence[str], session: Session
) -> tuple[PrecisionReport, Report]:
    """Audit what ``target`` builds, for ``session``, and return the audit and its report.

    Raises:
        UsageError: the target or a dtype is none.
        InputError: the target cannot be imported, or does not build a model.
    """
    model, inputs, loss = built_by(target)
    audit = precision(model, inputs, loss, dtypes=[name for name in dtypes if name.strip()])
    session.use(RULES)
    ladder = Section(
        title="Precision ladder",
        lines=tuple(audit.ladder().splitlines()),
        plots=(precision_ladder(audit),),
    )
    notes = Section(title="Notes", lines=audit.notes)
    report = session.finish()
    sections = (*report.sections, ladder, *([notes] if audit.notes else []))
    unjudged = (*report.not_evaluated, *audit.not_evaluated)
    return audit, replace(report, sections=sections, not_evaluated=unjudged)


def built_by(target: str) -> Built:
    """Call a target and return model, inputs and loss.

    Raises:
        UsageError: the text is no target.
        InputError: it cannot be imported, raises, or returns something else.
    """
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name:
        raise UsageError(f"{target}: write a target as file.py:function or module:function")
    module = _load_file(Path(place)) if place.endswith(".py") else load_module(place)
    build = getattr(module, name, None)
    if not callable(build):
        raise InputError(f"{target}: {place} has no function {name}")
    try:
        built: object = build()
    except Exception as error:
        raise InputError(f"{target} raised {type(error).__name__}: {error}") from error
    if isinstance(built, Mapping):
        built = tuple(built[key] for key in _KEYS if key in built)
    if isinstance(built, tuple) and len(built) in (2, 3) and isinstance(built[0], Module):
        return built[0], built[1], built[2] if len(built) > 2 else None
    raise InputError(
        f"{target}: returned {type(built).__name__}; return (model, inputs) or "
        "(model, inputs, loss_fn)"
    )


def _load_file(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.resolve().parent))
    try:
        return load_file(path, f"nabla_precision_target_{path.stem}")
    finally:
        sys.path.pop(0)
