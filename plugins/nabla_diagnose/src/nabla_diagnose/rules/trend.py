"""Rules about the course of the loss and of the validation loss."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "LOSS_FLOOR",
    "OVERFITTING",
    "PLATEAU",
    "RULES",
    "TRAIN_VAL_GAP",
    "VALIDATION_FROZEN",
]

PLATEAU = Rule(
    id="RUN107",
    name="plateau-from-start",
    summary="The loss shows no progress from the start on although the parameters move.",
    rationale="The model learns nothing that helps: inputs and targets may not belong together.",
    fix="Overfit one batch; check labels, inputs, the loss function and the learning rate.",
    limits="With the number of classes known: HIGH when the loss stays for 200 rows, and for a "
    "thousand samples where the batch size is declared, at the level of guessing or up to 4 % "
    "above it, and was never below; noise that hides as much hides the verdict. So is a run that "
    "is never below guessing, up to half above it, and moved by the size of its parameters. "
    "Without it: information after 40 rows without a trend, which a model that starts well trained "
    "shows as well. The cause cannot be decided from the log.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("GS005",),
    needs=("loss",),
    tags=("loss",),
    example=Example(
        bad="loader = zip(inputs, torch.roll(labels, 1))\n",
        good="loader = zip(inputs, labels)\n",
    ),
)

OVERFITTING = Rule(
    id="RUN108",
    name="overfitting",
    summary="The validation loss rises from its minimum on while the training loss falls.",
    rationale="Later checkpoints are worse on new data than the best one.",
    fix="Keep the checkpoint of the minimum; stop earlier, use more data or regularisation.",
    limits="Needs four evaluations after the minimum and a rise above their noise that undid all "
    "of the progress or is larger than the minimum itself, and is worth 12 % of it. What rose by "
    "less, but by a fifth of the progress and a twentieth of the minimum (a tenth of one that is "
    "no better than untrained), and still stands at the end, is information, and so is any rise "
    "while a metric of the task improves.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("GS004",),
    needs=("loss", "val_loss"),
    tags=("validation",),
    example=Example(
        bad="for epoch in range(500):\n    train_one_epoch(model, small_set)\n",
        good="for epoch in range(500):\n    train_one_epoch(model, small_set)\n"
        "    if stopper.should_stop(validate(model)):\n        break\n",
    ),
)

TRAIN_VAL_GAP = Rule(
    id="RUN110",
    name="train-val-gap-from-start",
    summary="The training loss falls, and the validation loss never leaves its first level.",
    rationale="The evaluated model is not the trained one: statistics, mode or weights differ, or "
    "the sets have nothing in common.",
    fix="Evaluate on the training set; check eval mode, running statistics and what is evaluated.",
    limits="Data that share nothing with the training set, and pure memorisation, look the same. "
    "Evaluations that fall all the way are not reported, however high they are; others must stay "
    "within 5 %, or show no trend. Nor are evaluations that are all above three times the first "
    "training losses: that is another quantity, such as a sum.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("loss", "val_loss"),
    tags=("validation",),
    example=Example(
        bad="norm = nn.BatchNorm2d(16, momentum=0.0)\n",
        good="norm = nn.BatchNorm2d(16, momentum=0.1)\n",
    ),
)

VALIDATION_FROZEN = Rule(
    id="RUN111",
    name="validation-frozen",
    summary="The validation loss is the same to all digits while the training loss falls.",
    rationale="What is evaluated does not change: a stale average, copy or cached result.",
    fix="Update the averaged weights after each step, and evaluate the model that is trained.",
    limits="Needs four equal evaluations between which the training loss fell beyond its noise, "
    "and the parameters moved by a hundredth of their size (where no updates are logged, the loss "
    "fell by a twentieth of its start): at the end of a schedule both stand still. The fall must "
    "be worth twenty of the last digits that the log keeps.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("loss", "val_loss"),
    tags=("validation",),
    example=Example(
        bad="average = copy.deepcopy(model)\nfor batch in loader:\n    train(model, batch)\n"
        "validate(average)\n",
        good="average = AveragedModel(model)\nfor batch in loader:\n    train(model, batch)\n"
        "    average.update_parameters(model)\nvalidate(average)\n",
    ),
)

LOSS_FLOOR = Rule(
    id="RUN112",
    name="loss-floor-of-double-activation",
    summary="The loss comes to rest exactly at the floor that a second activation causes.",
    rationale="Probabilities were given where logits are expected: the loss cannot fall below.",
    fix="Give logits to cross_entropy and binary_cross_entropy_with_logits.",
    limits="Needs the kind of loss, and for cross-entropy the number of classes. Where layers are"
    " measured, outputs with a spread above 4 give it away before the loss has come down. Data "
    "whose noise gives the same floor would be reported wrongly; nabla run decides it exactly "
    "(AUD401).",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("loss",),
    tags=("loss",),
    example=Example(
        bad="loss = F.cross_entropy(logits.softmax(-1), target)\n",
        good="loss = F.cross_entropy(logits, target)\n",
    ),
)

RULES = (PLATEAU, OVERFITTING, TRAIN_VAL_GAP, VALIDATION_FROZEN, LOSS_FLOOR)
