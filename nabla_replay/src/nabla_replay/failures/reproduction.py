"""The script of an artifact: it reads the data beside it, and executes the failing step again."""

from __future__ import annotations

__all__ = ["SCRIPT"]

SCRIPT = '''\
"""Executes the failing step again, op by op. Exits with 1 while the fault is there.

    python reproduction.py file.py:build [RUN]

build() returns the program: model, optimizer, loader, ... and step(batch). What is to be shown
stands in reproduction.json; the state comes from the captured run, RUN if it was moved.
"""

import json
import sys
from pathlib import Path

from nabla_replay import explain_step
from nabla_replay.building import load_factory

here = Path(__file__).resolve().parent
case = json.loads((here / "reproduction.json").read_text(encoding="utf-8"))
if len(sys.argv) < 2:
    sys.exit(__doc__)
run = Path(sys.argv[2]) if len(sys.argv) > 2 else here / case["run"]
build = load_factory(sys.argv[1], run)
report = explain_step(run, case["step"], build=build, rank=case["rank"])
report.print()
sys.exit(any(issue.rule in case["rules"] for issue in report.issues))
'''
"""Source of ``reproduction.py``; the same for every failure."""
