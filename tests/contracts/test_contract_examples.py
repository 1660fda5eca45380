"""The examples say what their text promises."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    loaded = []

    def load(name):
        loaded.append(name)
        return import_module(name)

    yield load
    for name in loaded:
        sys.modules.pop(name, None)


def test_the_batch_in_the_wrong_unit_breaks_two_contracts(example):
    report = example("contracts_in_a_loop").main()

    found = [issue for issue in report.issues if issue.rule.startswith("CON")]
    assert [(issue.rule, issue.step) for issue in found] == [("CON102", 30), ("CON105", 30)]
    assert found[0].evidence["parameter"] == "2.weight"


def test_the_unit_tests_pass(example):
    module = example("contracts_in_pytest")

    module.test_three_steps_hold()
    module.test_one_backward_holds()


def test_a_loss_that_is_scaled_up_fails_them(example):
    module = example("contracts_in_pytest")

    with pytest.raises(AssertionError, match="gradient norm"):
        module.nabla.contracts.assert_step(module.build(1e3), module.WANTED)
