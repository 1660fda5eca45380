"""The examples of the trace say what their text promises."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    loaded = []

    def load(name):
        loaded.append(name)
        return import_module(name).main()

    yield load
    for name in loaded:
        sys.modules.pop(name, None)


def rules_of(result):
    return {issue.rule for issue in result.issues}


def test_losses(run):
    assert rules_of(run("trace_losses")) == {"GEO101"}


def test_samples(run):
    result, scaled = run("trace_samples")

    assert "GEO204" in rules_of(result)
    assert sorted(result.rank("label")[:3]) == [7, 31, 60]
    assert rules_of(scaled) == {"GEO201"} and scaled.rank()[0] == 7


def test_loop(run):
    assert "GEO301" in rules_of(run("trace_loop"))
