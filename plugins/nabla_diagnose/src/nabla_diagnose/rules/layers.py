"""Rules about single layers: units, activations and weights."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "ACTIVATION_SCALE_DRIFT",
    "ATTENTION_ENTROPY_COLLAPSE",
    "DEAD_UNITS",
    "EVERYTHING_DROPPED",
    "INITIAL_LOSS_TOO_HIGH",
    "REPRESENTATION_COLLAPSE",
    "RULES",
    "SATURATED_UNITS",
    "SYMMETRIC_UNITS",
    "WEIGHT_COLLAPSE",
    "WEIGHT_GROWTH",
]

DEAD_UNITS = Rule(
    id="RUN401",
    name="dead-units",
    summary="Nearly all units of a layer give zero for every sample.",
    rationale="They get no gradient and cannot come back; what lies below does not learn.",
    fix="Check biases and learning rate; use a leaky activation.",
    limits="Counts units, not elements: ordinary sparsity is no fault. Three measurements in a row "
    "above 98 %. The most upstream layer is named.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("layer_norms",),
    tags=("layer",),
    example=Example(
        bad="nn.init.constant_(layer.bias, -10.0)\n",
        good="nn.init.zeros_(layer.bias)\n",
    ),
)

SATURATED_UNITS = Rule(
    id="RUN402",
    name="saturated-units",
    summary="Nearly all outputs of a layer sit at the end of its activation's range.",
    rationale="The derivative there is almost zero: the layer and those before it hardly learn.",
    fix="Scale the initialisation or normalise the inputs.",
    limits="Three measurements in a row above 70 %, early, or the first three above 50 %. Gates "
    "and heads may saturate late in a good run; that is not reported while the loss falls.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("layer_norms",),
    tags=("layer",),
    example=Example(
        bad="nn.init.normal_(layer.weight, std=10.0)  # before a tanh\n",
        good="nn.init.xavier_normal_(layer.weight)\n",
    ),
)

ACTIVATION_SCALE_DRIFT = Rule(
    id="RUN403",
    name="activation-scale-drift",
    summary="The spread of the activations grows or shrinks by a large factor per layer at start.",
    rationale="The initialisation does not fit the depth or the activation.",
    fix="Use an initialisation made for the activation, or normalisation layers.",
    limits="First measurement only; three layers in a row by a factor of ten each, in one "
    "direction. Residual sums grow more slowly.",
    severity=Severity.MEDIUM,
    since="0.1",
    stability="preview",
    needs=("layer_norms",),
    tags=("layer",),
    example=Example(
        bad="nn.init.normal_(layer.weight, std=1.0)  # 1024 inputs\n",
        good="nn.init.kaiming_normal_(layer.weight)\n",
    ),
)

SYMMETRIC_UNITS = Rule(
    id="RUN404",
    name="symmetric-units",
    summary="The units of a layer are copies of one another, or its weights are all zero.",
    rationale="Equal units get equal gradients and stay equal: the layer has the width of one.",
    fix="Initialise the weights at random.",
    limits="Exact for weights that are zero in two or more layers. Without the weights themselves, "
    "units that are equal are seen by what they do: at the first measurement the gradients before "
    "the last layer cancel out to a millionth of its own, or no unit of the first activation tells "
    "two samples apart, or units are zero together. A last layer of zeros, a residual branch or an "
    "adapter, is no fault. A regression whose biases differ shows nothing.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("layer_norms",),
    tags=("layer",),
    example=Example(
        bad="for p in model.parameters():\n    nn.init.constant_(p, 0.01)\n",
        good="for m in model.modules():\n    if isinstance(m, nn.Linear):\n"
        "        nn.init.kaiming_normal_(m.weight)\n",
    ),
)

ATTENTION_ENTROPY_COLLAPSE = Rule(
    id="RUN405",
    name="attention-entropy-collapse",
    summary="The entropy of an attention layer fell to almost nothing.",
    rationale="Every query looks at one place; the logits grow and training becomes unstable.",
    fix="Normalise queries and keys, or lower the learning rate.",
    limits="Needs the signal attention_entropy per layer. Heads that point on purpose look the "
    "same.",
    severity=Severity.MEDIUM,
    since="0.1",
    stability="preview",
    needs=("layer_norms",),
    tags=("layer",),
    example=Example(
        bad="scores = q @ k.transpose(-1, -2)\n",
        good="scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5\n",
    ),
)

REPRESENTATION_COLLAPSE = Rule(
    id="RUN406",
    name="representation-collapse",
    summary="The spread of the model's output over the batch fell to almost nothing.",
    rationale="All inputs get the same representation; the loss is satisfied by a constant.",
    fix="Use negatives, a stop-gradient or a variance term.",
    limits="Only for losses declared custom: a regression of a constant target or a batch of one "
    "class gives the same picture. Three measurements in a row below 1 % of the first.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("layer_norms",),
    tags=("layer",),
    example=Example(
        bad="loss = (encoder(a) - encoder(b)).pow(2).mean()\n",
        good="loss = info_nce(encoder(a), encoder(b))\n",
    ),
)

WEIGHT_GROWTH = Rule(
    id="RUN407",
    name="weight-growth",
    summary="The weights of a layer grew to many times their first size and go on growing.",
    rationale="Nothing holds them back: the scale of the outputs runs away.",
    fix="Add weight decay or normalisation; lower the learning rate.",
    limits="More than thirtyfold and still growing, with a loss that does not improve. Layers that "
    "start at zero are not judged; before a normalisation growth is harmless.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("layer_norms",),
    tags=("layer",),
    example=Example(
        bad="optimizer = Adam(model.parameters(), lr=0.1)\n",
        good="optimizer = AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)\n",
    ),
)

WEIGHT_COLLAPSE = Rule(
    id="RUN408",
    name="weight-collapse",
    summary="The weights of nearly all layers shrank to almost nothing.",
    rationale="The decay is stronger than the gradient: the model forgets what it knew.",
    fix="Lower the weight decay; with coupled decay it is multiplied by the learning rate.",
    limits="Below 5 % of the first size in every layer that shrank, and at least in half of all; "
    "below 30 % where the steps did little else and the loss gained less than a tenth. Pruning "
    "does this on purpose.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("layer_norms",),
    tags=("layer",),
    example=Example(
        bad="optimizer = AdamW(model.parameters(), lr=0.01, weight_decay=10.0)\n",
        good="optimizer = AdamW(model.parameters(), lr=0.01, weight_decay=0.01)\n",
    ),
)

INITIAL_LOSS_TOO_HIGH = Rule(
    id="RUN409",
    name="initial-loss-too-high",
    summary="The first loss is far above that of guessing.",
    rationale="The untrained model is sure of wrong answers: its weights or inputs are too large.",
    fix="Check the initialisation, and normalise the inputs.",
    limits="Needs the number of classes: above 3.5 times guessing in the first rows; in the first "
    "alone, above 4.4 times, if the outputs of the last layer are as wide as those of a sure "
    "model, or whatever they are above 350 times; in the median of the first ten where the steps "
    "moved the parameters by less than 2 %. Weights trained on other labels give a high "
    "first loss as well. Summed losses are left to RUN207.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("loss",),
    tags=("loss",),
    example=Example(
        bad="nn.init.normal_(head.weight, std=10.0)\n",
        good="nn.init.zeros_(head.weight)\n",
    ),
)

EVERYTHING_DROPPED = Rule(
    id="RUN410",
    name="everything-dropped",
    summary="A dropout layer gives zero for every element.",
    rationale="Nothing of the input reaches the layers behind it.",
    fix="The argument of Dropout is the share that is dropped, not the share that is kept.",
    limits="Exact, three measurements in a row, while the layers before it are alive.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("layer_norms",),
    tags=("layer",),
    example=Example(bad="drop = nn.Dropout(1.0)\n", good="drop = nn.Dropout(0.1)\n"),
)

RULES = (
    DEAD_UNITS,
    SATURATED_UNITS,
    ACTIVATION_SCALE_DRIFT,
    SYMMETRIC_UNITS,
    ATTENTION_ENTROPY_COLLAPSE,
    REPRESENTATION_COLLAPSE,
    WEIGHT_GROWTH,
    WEIGHT_COLLAPSE,
    INITIAL_LOSS_TOO_HIGH,
    EVERYTHING_DROPPED,
)
