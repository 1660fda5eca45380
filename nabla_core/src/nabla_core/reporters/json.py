"""The report for machines: strict JSON, redacted, keys that never change their meaning."""

from __future__ import annotations

import json

from ..redaction import redact_tree
from ..report import Report
from .style import Style

__all__ = ["render"]


def render(report: Report, style: Style) -> str:
    """Return the whole report as one JSON object; see ``schema_version``."""
    del style  # the same for every reader
    text = json.dumps(redact_tree(report.to_dict()), indent=2, allow_nan=False, ensure_ascii=False)
    # half of a surrogate pair has no UTF-8, but an escape in JSON that happens to be Python's
    return text.encode("utf-8", "backslashreplace").decode() + "\n"
