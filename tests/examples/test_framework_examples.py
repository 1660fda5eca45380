"""The examples of the frameworks find the fault that their text names."""

import os
import sys
from importlib import import_module
from pathlib import Path

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "framework", "rule"),
    [
        ("hf_trainer", "transformers", "AUD204"),
        ("lightning_trainer", "lightning", "AUD401"),
        ("keras_fit", "keras", "NUM104"),
        ("accelerate_loop", "accelerate", "AUD202"),
    ],
)
def test_the_planted_fault_is_found(name, framework, rule, monkeypatch):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    monkeypatch.syspath_prepend(EXAMPLES)
    try:
        report = import_module(name).main()
    finally:
        sys.modules.pop(name, None)

    assert rule in [issue.rule for issue in report.issues if issue.severity > issue.severity.MEDIUM]
