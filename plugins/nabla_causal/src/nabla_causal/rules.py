"""The rules of nabla-causal. CAU101 to CAU103 order what other rules found and fail no run."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "COUPLED_FAILURES",
    "DEAD_LAYER",
    "LAYER_JUMP",
    "PROPAGATION",
    "ROOT_CAUSE",
    "RULES",
]

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

DEAD_LAYER = Rule(
    id="CAU104",
    name="dead-layer",
    summary="A layer gives nothing but zeros, and no gradient goes through it any more.",
    rationale="What lies before it cannot learn, and what lies behind it sees no data.",
    fix="Look at its weights and its bias: a large step may have pushed all units below zero. "
    "Reset the layer, lower the learning rate, or use an activation with a slope below zero.",
    limits="Judges whole layers, by the ranges of their outputs and gradients in standard and deep "
    "mode; single dead units are RUN401's, which needs nabla.watch. The layer has to have been "
    "alive, or fed by negative numbers only; what it was given must not be zero. Silent where the "
    "gradient goes around it to the layer that ran before, and for less than eight steps.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("layer_history",),
    example=Example(
        bad="net[2].bias.data.fill_(-1e3)  # in front of a ReLU\n",
        good="net[2].bias.data.zero_()\n",
    ),
)

LAYER_JUMP = Rule(
    id="CAU105",
    name="layer-jump",
    summary="From one step on, the outputs of a layer are a hundred times what they were.",
    rationale="Behind a normalisation or a bounded activation the loss may hide it for long.",
    fix="Look at what changed in that step: the weights of the layer, or what it was given.",
    limits="Compares the largest magnitude of each layer's outputs with the largest of at least 16 "
    "steps before, in standard and deep mode; at least three steps in a row have to show it. Data "
    "of another unit looks the same in the first layer.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("layer_history",),
    example=Example(
        bad="blocks[3].fc.weight.data *= 1e4\n",
        good="blocks[3].fc.weight.data *= 1.01\n",
    ),
)

RULES = (ROOT_CAUSE, PROPAGATION, COUPLED_FAILURES, DEAD_LAYER, LAYER_JUMP)
