"""The examples say what their text promises."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLES)
    loaded = []

    def run(name):
        loaded.append(name)
        return import_module(name).main(str(tmp_path))

    yield run
    for name in loaded:
        sys.modules.pop(name, None)


def test_a_run_is_replayed_exactly_and_a_changed_module_is_found(example):
    same, other = example("replay_exact")
    assert same.passed
    assert (other.divergence.module, other.divergence.direction) == ("1", "forward")


def test_the_first_bad_step_is_found_by_a_number_and_by_the_state(example):
    by_loss, by_state = example("replay_first_bad_step")
    assert by_loss.first_bad_step == by_state.first_bad_step == 33
    assert by_state.replayed_steps <= 20


def test_a_resume_without_the_optimizer_is_not_the_same_run(example):
    capture = example("replay_resume")
    assert capture.resumed.step == 19
    assert {issue.evidence["component"] for issue in capture.issues} >= {"optimizer"}
