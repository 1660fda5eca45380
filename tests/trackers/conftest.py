import math

import pytest

import nabla

HOSTILE = "\x1b[2J<script>alert(1)</script>\n::error::x `rm` | # ../..\ud800\u202e" + "x" * 5_000


@pytest.fixture
def watched():
    """Watch rows that end in NaN, and tell ``alert``; return the report."""

    def run(alert, rows=30, broken=True):
        with nabla.watch(quiet=True, on_alert=alert) as run:
            for step in range(rows):
                bad = broken and step == rows - 1
                run.log(step, math.nan if bad else 1.0 / (step + 1), lr=0.1)
        return run.finish()

    return run


@pytest.fixture
def hostile():
    """An issue and a report whose texts a malicious model may have chosen."""
    from dataclasses import replace

    from nabla_core.host import default_host
    from nabla_core.plots import Curves, Series
    from nabla_core.report import Report, Section

    rule = default_host().registry.get("RUN101")
    issue = replace(rule.issue(HOSTILE, step=3, where=nabla_location(HOSTILE)), suggestion=HOSTILE)
    curve = Series(name=HOSTILE, at=(0.0, 1.0), values=(math.inf, math.nan))
    dots = Series(name="../../../etc/passwd", at=(0.0,), values=(1.0,))
    section = Section(title=HOSTILE, plots=(Curves(title=HOSTILE, series=(curve, dots)),))
    return issue, Report(issues=(issue,), sections=(section,))


def nabla_location(text):
    from nabla_core import Location

    return Location(module=text, file=text)
