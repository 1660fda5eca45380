"""Rules about modes, learning rates and schedules."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "RULES",
    "TRAINING_IN_EVAL_MODE",
]

TRAINING_IN_EVAL_MODE = Rule(
    id="AUD301",
    name="training-in-eval-mode",
    summary="Training steps run with the model in evaluation mode.",
    rationale="Dropout and the statistics of normalisation layers are off: the model trains "
    "differently "
    "from what its author wrote, and only the validation curve shows it.",
    fix="Call model.train() after every evaluation, at the start of the training loop.",
    limits="Reported after three steps in a row, only if every module that depends on the mode is "
    "in "
    "evaluation mode, so frozen normalisation layers are no fault. HIGH when an evaluation without "
    "gradients came between, MEDIUM when the model was never in training mode or was switched "
    "without "
    "an evaluation, because that may be meant.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("modes", "gradients.written"),
    tags=("mode",),
    example=Example(
        bad="model.train()\nfor epoch in range(epochs):\n    train_one_epoch(model)\n"
        "    model.eval()\n    validate(model)\n",
        good="for epoch in range(epochs):\n    model.train()\n    train_one_epoch(model)\n"
        "    model.eval()\n    validate(model)\n",
    ),
)

RULES = (
    TRAINING_IN_EVAL_MODE,
)
