import math

import pytest

from nabla_causal.frames import Frame, Frames
from nabla_core.issue import Location
from nabla_core.rule import Rule
from nabla_core.severity import Severity


@pytest.fixture
def finding():
    """Make an issue as a rule with this ID would."""

    def make(rule, step=0, layer=None, severity=Severity.HIGH, text="found"):
        maker = Rule(
            id=rule,
            name=f"rule-{rule.lower()}",
            summary="s",
            rationale="r",
            fix="f",
            limits="l",
            severity=severity,
            since="0.1",
        )
        where = None if layer is None else Location(module=layer)
        return maker.issue(text, step=step, where=where)

    return make


@pytest.fixture
def frames():
    """Make steps in which layers have their usual scale, except where a change says otherwise."""

    def make(layers, steps, *, outputs=None, gradients=None, wobble=0.1):
        def row(step, changes):
            values = []
            for layer in range(layers):
                usual = (1.0 + layer) * (1.0 + wobble * math.sin(7.0 * step + layer))
                change = (changes or {}).get((step, layer))
                values.append(usual if change is None else change)
            return values

        return Frames(
            tuple(f"body.{layer}" for layer in range(layers)),
            tuple(Frame(step, row(step, outputs), row(step, gradients)) for step in range(steps)),
        )

    return make
