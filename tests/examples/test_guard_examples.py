"""The examples of the guard say what their text promises."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from nabla_core.severity import Severity

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def report_of(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    loaded = []

    def run(name):
        loaded.append(name)
        return import_module(name).main()

    yield run
    for name in loaded:
        sys.modules.pop(name, None)


def numeric(report):
    return [
        issue
        for issue in report.issues
        if issue.rule.startswith("NUM") and issue.severity >= Severity.LOW
    ]


@pytest.mark.parametrize(
    ("name", "rule", "op", "text"),
    [
        ("guard_unstable_exp", "NUM101", "exp", "weights = torch.exp(x)"),
        ("guard_masked_row", "NUM101", "_softmax", "scores.softmax(-1)"),
        ("guard_where_trap", "NUM102", "SqrtBackward0", "torch.where(x > 0, x.sqrt()"),
        ("guard_silent_variance", "NUM122", "sub", "- mean**2"),
    ],
)
def test_the_fault_is_named_with_its_op_and_line(report_of, name, rule, op, text):
    first = numeric(report_of(name))[0]

    source = (EXAMPLES / f"{name}.py").read_text().splitlines()
    assert (first.rule, first.where.op) == (rule, op), first.message
    assert text in source[first.where.line - 1]


def test_an_overflow_is_announced_before_it_happens(report_of):
    issues = numeric(report_of("guard_half_overflow"))

    assert [(issue.rule, issue.where.op) for issue in issues] == [
        ("NUM111", "mul"),
        ("NUM101", "mul"),
    ]
    assert issues[0].step < issues[1].step


def test_a_healthy_mixed_precision_run_is_left_alone(report_of):
    assert numeric(report_of("guard_healthy_amp")) == []
