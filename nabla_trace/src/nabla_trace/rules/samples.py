"""Rules about the samples of one batch."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "BATCH_CANCELLATION",
    "LABEL_SUSPECT",
    "RULES",
    "SAMPLE_DOMINANT",
    "SAMPLE_DUPLICATE",
    "SAMPLE_OPPOSING",
]

SAMPLE_DOMINANT = Rule(
    id="GEO201",
    name="sample-dominant",
    summary="One sample supplies most of the batch gradient.",
    rationale="The step is a step on this sample; the others are spectators.",
    fix="Look at the sample: scale, label, units. Clip per sample or use a robust loss.",
    limits="One batch at one step. With few samples left to learn from, the last hard ones "
    "dominate by nature.",
    severity=Severity.LOW,
    since="0.1",
    example=Example(
        bad="x[3] = 1000 * x[3]  # one record in other units\n",
        good="x = (x - mean) / std\n",
    ),
)

SAMPLE_OPPOSING = Rule(
    id="GEO202",
    name="sample-opposing",
    summary="A sample pulls against all the others together.",
    rationale="Learning it unlearns the rest.",
    fix="Look at the sample and its label.",
    limits="Leave-one-out cosine: the batch mean without the sample itself. Only samples of twice "
    "the average gradient length are named, none when a quarter of the batch opposes, and none "
    "where the others have no common direction: near a minimum every sample is against their sum.",
    severity=Severity.LOW,
    since="0.1",
    example=Example(
        bad="y[3] = wrong_label\n",
        good="y[3] = right_label\n",
    ),
)

SAMPLE_DUPLICATE = Rule(
    id="GEO203",
    name="sample-duplicate",
    summary="Two samples have the same gradient.",
    rationale="A duplicate counts twice and leaks over a split.",
    fix="Remove the duplicates, or sample without replacement.",
    limits="Equal gradients at this state of the model: different samples that the model "
    "cannot tell apart look the same. Information only where the inputs differ, or where more than "
    "a quarter of the batch has a twin, as data with few possible values do.",
    severity=Severity.LOW,
    since="0.1",
    example=Example(
        bad="batch = data[torch.tensor([0, 1, 1, 2])]\n",
        good="batch = data[torch.randperm(len(data))[:4]]\n",
    ),
)

LABEL_SUSPECT = Rule(
    id="GEO204",
    name="sample-label-suspect",
    summary="The gradient of a sample disagrees with those of the samples that have its label.",
    rationale="Samples with a wrong label point away from those whose label they bear, from the "
    "first steps on.",
    fix="Look at the named samples first.",
    limits="A suspicion, no verdict: a rare kind of a class looks the same. Needs integer "
    "labels with at least three samples of the class in the batch, a gradient above the usual "
    "length, and an agreement three deviations below that of the batch.",
    severity=Severity.LOW,
    since="0.1",
    example=Example(
        bad="labels[index] = (labels[index] + 1) % classes\n",
        good="labels = checked(labels)\n",
    ),
)

BATCH_CANCELLATION = Rule(
    id="GEO205",
    name="batch-cancellation",
    summary="The samples of the batch cancel far beyond what independent samples would.",
    rationale="Pairs of opposite samples leave a step that no sample asks for.",
    fix="Look for contradicting labels of equal inputs, or a mirrored augmentation; at a "
    "converged full batch there is nothing to do.",
    limits="At the minimum of a full batch the sum is zero by definition: information only.",
    severity=Severity.INFO,
    since="0.1",
    example=Example(
        bad="batch = torch.cat([x, x])\nlabels = torch.cat([y, 1 - y])\n",
        good="batch, labels = x, y\n",
    ),
)

RULES = (
    SAMPLE_DOMINANT,
    SAMPLE_OPPOSING,
    SAMPLE_DUPLICATE,
    LABEL_SUSPECT,
    BATCH_CANCELLATION,
)
