"""Rules about the data, as far as the numbers of a run show them."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "CLASS_IMBALANCE",
    "DISTRIBUTION_SHIFT",
    "INPUT_SCALE",
    "LABELS_UNINFORMATIVE",
    "OUTLIER_BATCH",
    "REPEATED_BATCH",
    "RULES",
    "TOO_GOOD",
    "UNSHUFFLED",
]

DISTRIBUTION_SHIFT = Rule(
    id="RUN501",
    name="distribution-shift",
    summary="From one step on the inputs have another mean or spread, and the loss is higher.",
    rationale="The later data are not like the earlier ones.",
    fix="Compare shards, preprocessing and order of the data around that step.",
    limits="Needs the signal input_std. It must leave its noise by eight deviations for 20 rows, "
    "and the loss must rise with it.",
    severity=Severity.MEDIUM,
    since="0.1",
    stability="preview",
    needs=("loss", "input_std"),
    tags=("data",),
    example=Example(
        bad="loader = chain(normalised_shards, raw_shards)\n",
        good="loader = map(normalise, chain(first_shards, raw_shards))\n",
    ),
)

OUTLIER_BATCH = Rule(
    id="RUN502",
    name="outlier-batch",
    summary="Single batches give a loss and a gradient far outside of all others.",
    rationale="Corrupted samples steer the parameters away; the loss needs many steps to recover.",
    fix="Look at the samples of the named steps; filter or clip them.",
    limits="The batch is named, not seen: a heavy-tailed data set gives the same picture, so three "
    "deviations of both loss and gradient are not enough: twelve are. Not for batches of one.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("loss", "grad_norm"),
    tags=("data",),
    example=Example(
        bad="images = decode(files)  # some are in 0..255, most in 0..1\n",
        good="images = decode(files)\nimages = images / images.amax()\n",
    ),
)

UNSHUFFLED = Rule(
    id="RUN503",
    name="unshuffled",
    summary="The loss repeats the same waves with a fixed period.",
    rationale="The batches come in the same sorted order in every pass over the data.",
    fix="Shuffle: DataLoader(..., shuffle=True).",
    limits="Needs several periods of 10 to 100 rows, with neighbouring rows alike and a pattern "
    "that comes back in its details, or a set of two to four batches whose losses each fall "
    "smoothly (within the first 120 rows): a small set in a fixed but random order is not "
    "reported, nor a loss that swings like a sine, as that of an optimizer which rings does.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("loss",),
    tags=("data",),
    example=Example(
        bad="loader = DataLoader(sorted_by_label)\n",
        good="loader = DataLoader(sorted_by_label, shuffle=True)\n",
    ),
)

CLASS_IMBALANCE = Rule(
    id="RUN504",
    name="class-imbalance",
    summary="The loss stays at the entropy of the labels' frequencies: one class is predicted.",
    rationale="The model answers with the most frequent class and nothing else.",
    fix="Weight the classes, or sample them evenly.",
    limits="Needs the signal label_entropy and a loss declared cross_entropy.",
    severity=Severity.MEDIUM,
    since="0.1",
    stability="preview",
    needs=("loss", "label_entropy"),
    tags=("data",),
    example=Example(
        bad="loss = F.cross_entropy(logits, target)  # 99 % of one class\n",
        good="loss = F.cross_entropy(logits, target, weight=inverse_frequency)\n",
    ),
)

INPUT_SCALE = Rule(
    id="RUN505",
    name="input-scale",
    summary="The inputs are hundreds of times larger than one, and the first loss shows it.",
    rationale="Weights are made for inputs of unit size; large ones saturate and destabilise.",
    fix="Standardise the inputs with the statistics of the training set.",
    limits="With the signal input_std it is measured. Without, it is inferred: the first layer's "
    "outputs have a spread far above its weights' size, or its gradient is more than 15 times that "
    "of any other layer.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("loss",),
    tags=("data",),
    example=Example(bad="model(image)  # 0..255\n", good="model((image / 255 - mean) / std)\n"),
)

REPEATED_BATCH = Rule(
    id="RUN506",
    name="repeated-batch",
    summary="The training loss falls without any noise, and the validation loss does not fall.",
    rationale="Every step sees the same batch: the model learns it by heart.",
    fix="Draw the batch inside of the loop.",
    limits="Training on the whole set in one batch has no noise either, but its validation loss "
    "falls with it. Meant as a test of one batch, it is no fault. Not judged where each row "
    "has an evaluation, as in a log by epochs, nor where the gradient norm varies from row to row: "
    "such losses are averages.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("loss", "val_loss"),
    tags=("data",),
    example=Example(
        bad="batch = next(iter(loader))\nfor step in range(steps):\n    train(batch)\n",
        good="for batch in loader:\n    train(batch)\n",
    ),
)

LABELS_UNINFORMATIVE = Rule(
    id="RUN507",
    name="labels-uninformative",
    summary="The loss stays at guessing while parameters and gradients are in order.",
    rationale="The targets cannot be predicted from the inputs: shuffled, shifted or random.",
    fix="Print some pairs of inputs and targets; overfit one batch.",
    limits="A task that is too hard for the model looks the same from the log. Reported as "
    "information beside RUN107.",
    severity=Severity.INFO,
    since="0.1",
    needs=("loss", "update_ratio"),
    tags=("data",),
    example=Example(
        bad="labels = labels[torch.randperm(len(labels))]\n",
        good="order = torch.randperm(len(labels))\nlabels, inputs = labels[order], inputs[order]\n",
    ),
)

TOO_GOOD = Rule(
    id="RUN508",
    name="too-good",
    summary="Training and validation loss fall to almost zero within a few evaluations.",
    rationale="The answer may be in the input, or the sets overlap.",
    fix="Look for a column that holds the target, a missing causal mask, or overlapping sets.",
    limits="Easy data do the same: information only.",
    severity=Severity.INFO,
    since="0.1",
    stability="preview",
    needs=("loss", "val_loss"),
    tags=("data",),
    example=Example(
        bad="features = table.drop(columns=[])\n",
        good="features = table.drop(columns=['target'])\n",
    ),
)

RULES = (
    DISTRIBUTION_SHIFT,
    OUTLIER_BATCH,
    UNSHUFFLED,
    CLASS_IMBALANCE,
    INPUT_SCALE,
    REPEATED_BATCH,
    LABELS_UNINFORMATIVE,
    TOO_GOOD,
)
