"""Columns of several runs side by side: ``RUN - METRIC``, ``seed0/loss``, ``loss (run 2)``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .naming import AXES, name_of

__all__ = ["wide_groups"]

_WIDE = re.compile(r"(.+) - (.+)")
_ENVELOPE = re.compile(r".*__(MIN|MAX)")
_RUN = r"(?:run|seed|fold|trial|experiment|exp)[ _-]?(?:\d{1,6}|[A-Za-z])"
_FIRST = re.compile(rf"({_RUN})[/._: -]+(\D.*)", re.IGNORECASE)
_LAST = re.compile(rf"(.+?)[/._ -]*[(\[]?\b({_RUN})[)\]]?", re.IGNORECASE)


def wide_groups(names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return run to metric to place, if all columns but the axes are those of a named run.

    Trackers write ``RUN - METRIC``, with an envelope beside it that is left out. Otherwise a run
    is told by a word such as ``seed`` or ``fold``, and there must be two of them that log the same.
    """
    groups: dict[str, dict[str, int]] = {}
    for place, name in enumerate(names):
        found = _WIDE.fullmatch(name)
        if found is None:
            if name_of(name).quantity not in AXES:
                return _worded(names)
        elif not _ENVELOPE.fullmatch(name):
            groups.setdefault(found[1], {})[found[2]] = place
    return groups


def _worded(names: Sequence[str]) -> dict[str, dict[str, int]]:
    groups: dict[str, dict[str, int]] = {}
    for place, name in enumerate(names):
        first, last = _FIRST.fullmatch(name), _LAST.fullmatch(name.replace("_", " "))
        if first:
            groups.setdefault(first[1], {})[first[2]] = place
        elif last:
            groups.setdefault(last[2], {})[last[1]] = place
        elif name_of(name).quantity not in AXES:
            return {}
    metrics = {frozenset(found) for found in groups.values()}
    return groups if len(groups) > 1 and len(metrics) == 1 else {}
