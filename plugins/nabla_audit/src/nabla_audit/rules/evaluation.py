"""Rules about evaluation and recomputation."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = ["DROPOUT_MASK_REDRAWN", "EVALUATING_IN_TRAIN_MODE", "RULES"]

EVALUATING_IN_TRAIN_MODE = Rule(
    id="AUD302",
    name="evaluating-in-train-mode",
    summary="A model was evaluated without gradients while it, or a dropout inside it, was in "
    "training mode.",
    rationale="Dropout makes the score noisy and too low, and normalisation layers learn from the "
    "validation data.",
    fix="Call model.eval() before the evaluation and model.train() after it; pass "
    "training=self.training to F.dropout, and register dropout modules in __init__.",
    limits="Needs two different batches without gradients in a row and a layer that depends on "
    "the mode, or a module in evaluation mode that calls F.dropout without its training argument, "
    "an unregistered Dropout, or attention with a dropout_p above 0, or whose parts are all in "
    "training mode. Silent when the "
    "program does it before nearly every training call (pseudo-labels), "
    "when an optimizer step follows without another training call (a generator that samples), and "
    "while running statistics are averaged anew, and when a batch is given twice in a row or each "
    "one three times, as Monte-Carlo dropout does.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("evaluations", "modes"),
    tags=("mode",),
    example=Example(
        bad="with torch.no_grad():\n    for x, y in validation:\n        score(model(x), y)\n",
        good="model.eval()\nwith torch.no_grad():\n    for x, y in validation:\n"
        "        score(model(x), y)\nmodel.train()\n",
    ),
)

DROPOUT_MASK_REDRAWN = Rule(
    id="AUD307",
    name="dropout-mask-redrawn",
    summary="Backward recomputes a block with other random numbers than the forward pass used.",
    rationale="The gradient belongs to another dropout mask than the loss: it points elsewhere.",
    fix="Leave preserve_rng_state=True in checkpoint(), or restore the random state by hand; draw "
    "from torch's generator inside of it, because those of random and numpy are not restored.",
    limits="Needs two recomputations that drew random numbers and started from a random state of "
    "none of the step's first runs; torch's generator, Python's and numpy's are compared, "
    "the latter two as MEDIUM, because the draw may decide nothing. Random numbers drawn outside "
    "any module are not seen.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("recomputation",),
    tags=("mode",),
    example=Example(
        bad="h = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)\n",
        good="h = checkpoint(block, x, use_reentrant=False)\n",
    ),
)

RULES = (EVALUATING_IN_TRAIN_MODE, DROPOUT_MASK_REDRAWN)
