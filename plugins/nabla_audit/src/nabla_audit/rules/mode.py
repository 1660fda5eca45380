"""Rules about modes, learning rates and schedules."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "LR_ZERO",
    "RATE_WITHOUT_EFFECT",
    "RULES",
    "SCHEDULER_BEFORE_OPTIMIZER",
    "SCHEDULER_HORIZON",
    "SCHEDULER_STEPPED_TOO_OFTEN",
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
    "in evaluation mode, so frozen normalisation layers are no fault; the module's own flag does "
    "not count where every module below it, of several, says otherwise. Silent while all that "
    "depends on the mode lies in parts that take no gradients. HIGH when an evaluation "
    "without gradients came between, MEDIUM when the model was never in training mode or was "
    "switched without an evaluation, because that may be meant.",
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

LR_ZERO = Rule(
    id="AUD303",
    name="lr-zero",
    summary="The learning rate of every parameter group is exactly zero.",
    rationale="The steps change nothing, while loss and gradients are computed as if they did.",
    fix="Check the schedule: it has reached its end, or divides integers where it should not.",
    limits="Reported after three steps in a row with gradients. HIGH when the rate was above zero "
    "before, MEDIUM when it was zero from the start, which a warm-up may mean; that becomes "
    "information when the rate rises later in the run. Rates kept in a tensor on a device are not "
    "read.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "lr"),
    tags=("mode", "schedule"),
    example=Example(
        bad="scheduler = LambdaLR(optimizer, lambda step: step // warmup_steps)\n",
        good="scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup_steps))\n",
    ),
)

SCHEDULER_STEPPED_TOO_OFTEN = Rule(
    id="AUD304",
    name="scheduler-stepped-n-times",
    summary="A scheduler is stepped several times for each optimizer step.",
    rationale="The learning rate runs through its schedule that many times too fast.",
    fix="Call scheduler.step() once after each optimizer.step(), not per micro-batch.",
    limits="Reported when the same number above one is seen between three steps in a row. MEDIUM "
    "where the schedule states its own length, which may have been counted in micro-batches. "
    "ReduceLROnPlateau is not judged; a composed scheduler counts once. Silent where another "
    "optimizer makes as many steps: the schedule of a policy or generator may count those. MEDIUM "
    "too for two schedulers with the same settings on one optimizer, while another has none.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "schedulers"),
    tags=("mode", "schedule"),
    example=Example(
        bad="for index, batch in enumerate(batches):\n    loss(batch).backward()\n"
        "    scheduler.step()\n    if index % 4 == 3:\n        optimizer.step()\n",
        good="for index, batch in enumerate(batches):\n    loss(batch).backward()\n"
        "    if index % 4 == 3:\n        optimizer.step()\n        scheduler.step()\n",
    ),
)

SCHEDULER_BEFORE_OPTIMIZER = Rule(
    id="AUD305",
    name="scheduler-before-optimizer",
    summary="The scheduler is stepped before the optimizer in every iteration, or for an optimizer "
    "that never steps.",
    rationale="The first learning rate of the schedule is never used, and the whole schedule runs "
    "one step early.",
    fix="Call scheduler.step() after optimizer.step().",
    limits="Reported when the scheduler made exactly one step before the first and between each of "
    "the next three steps; for a schedule per epoch at the end of the run. Silent with a gradient "
    "scaler, whose first steps are skipped on purpose. HIGH when its optimizer has never stepped "
    "while another one made three steps on the same parameters: the optimizer was made anew.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("calls", "schedulers"),
    tags=("mode", "schedule"),
    example=Example(
        bad="for batch in batches:\n    scheduler.step()\n    backward(batch)\n"
        "    optimizer.step()\n",
        good="for batch in batches:\n    backward(batch)\n    optimizer.step()\n"
        "    scheduler.step()\n",
    ),
)

SCHEDULER_HORIZON = Rule(
    id="AUD306",
    name="scheduler-horizon-mismatch",
    summary="The length of the schedule does not fit the number of times it is stepped.",
    rationale="The learning rate rises again after its end, or never comes down.",
    fix="Give the scheduler the number of calls it will really get: steps or epochs, as it is "
    "called.",
    limits="Only schedules that state their length. MEDIUM when a cosine goes on past its end and "
    "rises again, or when its length equals the number of steps of the run while it is called far "
    "less often; information when the run ends before half of the schedule. A cosine that is meant "
    "to swing would be reported wrongly.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("calls", "schedulers"),
    tags=("mode", "schedule"),
    example=Example(
        bad="scheduler = CosineAnnealingLR(optimizer, T_max=epochs)  # stepped once per batch\n",
        good="scheduler = CosineAnnealingLR(optimizer, T_max=epochs * len(loader))\n",
    ),
)

RATE_WITHOUT_EFFECT = Rule(
    id="AUD308",
    name="rate-without-effect",
    summary="A learning rate is written to an attribute of the optimizer that torch never reads.",
    rationale="The schedule that was meant does not happen: each group of parameters has a "
    "learning rate of its own, and the steps use only that.",
    fix='Write optimizer.param_groups[i]["lr"], or use a class of torch.optim.lr_scheduler.',
    limits="Optimizers of torch itself: lr, learning_rate and defaults['lr'], after two looks at "
    "which it had changed and was the rate of no group, while those of the groups never changed. "
    "Of a settled loop only each 16th to 96th step is looked at.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("calls",),
    tags=("mode", "schedule"),
    example=Example(
        bad="optimizer.lr = 0.1 * 0.5**epoch\n",
        good='for group in optimizer.param_groups:\n    group["lr"] = 0.1 * 0.5**epoch\n',
    ),
)

RULES = (
    TRAINING_IN_EVAL_MODE,
    LR_ZERO,
    SCHEDULER_STEPPED_TOO_OFTEN,
    SCHEDULER_BEFORE_OPTIMIZER,
    SCHEDULER_HORIZON,
    RATE_WITHOUT_EFFECT,
)
