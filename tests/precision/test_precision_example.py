"""The example says what its text promises."""

import sys
from importlib import import_module
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_two_faulty_modules_are_named(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)

    report = import_module("precision_audit").main()
    sys.modules.pop("precision_audit", None)

    assert report.keep_in_float32("float16") == ("3", "6")
    assert report.keep_in_float32("bfloat16") == ("3",)
    assert sorted(issue.rule for issue in report.issues) == ["PRC101", "PRC102", "PRC104"]
