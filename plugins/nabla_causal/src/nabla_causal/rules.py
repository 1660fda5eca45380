"""The rules of nabla-causal. They order what other rules found; they never fail a run."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = ["COUPLED_FAILURES", "PROPAGATION", "ROOT_CAUSE", "RULES"]

ROOT_CAUSE = Rule(
    id="CAU101",
    name="root-cause",
    summary="One finding explains the others: it came first, and a known mechanism leads to them.",
    rationale="A list of findings is no answer; one has to be repaired first.",
    fix="Repair the named cause and run the test that would confirm it before anything else.",
    limits="Orders findings of other rules, so it knows nothing that none of them found. Time, "
    "place in the step and known mechanisms decide; a mechanism that is not in the table leaves "
    "two causes side by side. The score ranks hypotheses, it is no probability.",
    severity=Severity.INFO,
    since="0.1",
    example=Example(
        bad="optimizer = SGD(net.parameters(), lr=10.0)  # then: loss up, units dead, NaN\n",
        good="optimizer = SGD(net.parameters(), lr=0.1)\n",
    ),
)

PROPAGATION = Rule(
    id="CAU102",
    name="propagation",
    summary="A change of scale, a zero or a NaN travelled from one layer through the others.",
    rationale="The layer where it began is the one to look at; the others only pass it on.",
    fix="Look at the weights and at the input of the layer in which it began.",
    limits="Needs the ranges of the layers (mode standard or deep) of the steps before. A layer "
    "without an earlier layer to compare with may have been given the change by its input. What "
    "happens outside of leaf modules is seen at the next one.",
    severity=Severity.INFO,
    since="0.1",
    needs=("layer_history",),
    example=Example(
        bad="blocks[3].fc.weight.data *= 1e4\n",
        good="blocks[3].fc.weight.data *= 1.0\n",
    ),
)

COUPLED_FAILURES = Rule(
    id="CAU103",
    name="coupled-failures",
    summary="Findings of different kinds began together, and none is known to cause the other.",
    rationale="They may share a cause that no rule sees; repairing one may repair both.",
    fix="Look at what changed in that step: the batch, the learning rate, the code that ran.",
    limits="Says only that they began within the window.",
    severity=Severity.INFO,
    since="0.1",
    example=Example(
        bad="# at step 200 the gradient spikes and the inputs change their scale\n",
        good="# they begin far apart, or one is known to follow from the other\n",
    ),
)

RULES = (ROOT_CAUSE, PROPAGATION, COUPLED_FAILURES)
