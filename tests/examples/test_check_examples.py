"""The operator examples say what their text promises."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    loaded = []

    def run(name):
        loaded.append(name)
        return import_module(name).main()

    yield run
    for name in (*loaded, "wrong_square"):
        sys.modules.pop(name, None)


def test_a_wrong_backward_is_classified_as_a_factor(example):
    result = example("check_bad_backward")
    assert [issue.rule for issue in result.issues] == ["CHK201"]
    assert result.issues[0].evidence["pattern"] == "factor"
    assert len(result.format().splitlines()) <= 25


def test_a_second_derivative_is_silently_wrong(example):
    result = example("check_advanced")
    assert [issue.rule for issue in result.issues] == ["CHK204"]
    assert "first" not in result.issues[0].message.lower()


def test_the_smallest_failing_shape_is_found(example):
    result = example("check_fuzz")
    assert not result.passed
    assert "x (1, 17) float64; weight (1, 17) float64" in result.format()
