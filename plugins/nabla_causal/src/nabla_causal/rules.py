"""The rules of nabla-causal. CAU101 to CAU103 and CAU108 order what other rules found."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "COUPLED_FAILURES",
    "DEAD_LAYER",
    "FADING_GRADIENTS",
    "INPUT_SHIFT",
    "LAYER_JUMP",
    "PROPAGATION",
    "ROOT_CAUSE",
    "RULES",
    "SATURATED_LAYER",
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

FADING_GRADIENTS = Rule(
    id="CAU106",
    name="fading-gradients",
    summary="The gradient, measured against the weights, fades on its way to the first layers.",
    rationale="The layers near the input do not learn.",
    fix="Use residual connections, normalisation, or an activation that does not saturate.",
    limits="For guarded loops in standard and deep mode; nabla.watch has RUN302 for it. Needs four "
    "modules with weights that run one after the other, a ratio below 1e-4 between the first and "
    "the last, and the same in three looks that are eight or more steps apart. What loses its "
    "gradient in all layers together is not reported. With two optimizers each is judged alone.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("layer_history", "gradients"),
    example=Example(
        bad="body = [part for _ in range(20) for part in (nn.Linear(64, 64), nn.Sigmoid())]\n",
        good="body = [Residual(nn.Linear(64, 64), nn.ReLU()) for _ in range(20)]\n",
    ),
)

SATURATED_LAYER = Rule(
    id="CAU107",
    name="saturated-layer",
    summary="Nearly all outputs of a tanh or sigmoid layer sit at the ends of its range.",
    rationale="The derivative there is almost zero: the layer and those before it hardly learn.",
    fix="Scale the inputs or the first weights down, or normalise in front of the layer.",
    limits="For guarded loops in standard and deep mode, in the first 128 steps; nabla.watch has "
    "RUN402 for it. Three looks in a row above 70 %. Sees modules only, not torch.tanh, and not "
    "the last module of a model, whose answers may be certain.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("layer_history",),
    example=Example(
        bad="net = nn.Sequential(nn.Linear(6, 32), nn.Tanh())  # fed with 0 to 5000\n",
        good="net = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 32), nn.Tanh())\n",
    ),
)

INPUT_SHIFT = Rule(
    id="CAU108",
    name="input-shift",
    summary="From some step on the inputs of the model are several times larger or smaller.",
    rationale="Later faults that look like the model's may come from other data.",
    fix="Compare what was read and how it was scaled before and after that step.",
    limits="Told only beside another finding, as its possible cause. The root mean square of the "
    "first floating-point input of each root module, in one of eight or more steps: a factor of "
    "four beyond all earlier looks that lasts to the end. Single batches and shifts that leave "
    "the size as it is are not seen; RUN501 judges what is logged as input_std.",
    severity=Severity.INFO,
    since="0.1",
    needs=("inputs",),
    example=Example(
        bad="x = batch * 255.0  # in the second half of the data\n",
        good="x = batch\n",
    ),
)

RULES = (
    ROOT_CAUSE,
    PROPAGATION,
    COUPLED_FAILURES,
    DEAD_LAYER,
    LAYER_JUMP,
    FADING_GRADIENTS,
    SATURATED_LAYER,
    INPUT_SHIFT,
)
