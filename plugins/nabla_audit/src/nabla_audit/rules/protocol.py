"""Rules about the order of calls in a training loop."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "ACCUMULATION_DISCARDED",
    "ACCUMULATION_NOT_DIVIDED",
    "ACCUMULATION_WEIGHTING",
    "BACKWARD_COUNT_CHANGED",
    "CLIP_BEFORE_UNSCALE",
    "CLIP_OF_NOTHING",
    "GRADIENTS_NOT_CLEARED",
    "GRADIENT_FROM_OTHER_LOSS",
    "OPTIMIZER_REMADE",
    "RULES",
    "SCALER_PROTOCOL",
    "STEP_WITHOUT_GRADIENT",
]

STEP_WITHOUT_GRADIENT = Rule(
    id="AUD101",
    name="step-without-gradient",
    summary="The gradients were cleared between backward and the optimizer step, or backward was "
    "never called.",
    rationale="The step has nothing to apply: the parameters never learn, and nothing raises "
    "an error.",
    fix="Move zero_grad() to the start of the iteration, before the forward pass, or behind "
    "step().",
    limits="Reported after three such steps in a row; with a closure, only if they changed "
    "nothing. A gradient "
    "that is zero by itself is no fault: a clear must have come after a backward that wrote. A "
    "missing backward is reported at the fourth step, if the model ran with gradients on, nothing "
    "in the program has a gradient, and the steps changed nothing. An optimizer whose gradients "
    "are written and cleared ten times and that never steps is reported at the end, as MEDIUM.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "gradients.written"),
    tags=("protocol",),
    example=Example(
        bad="for x, y in batches:\n    loss = loss_fn(model(x), y)\n    loss.backward()\n"
        "    optimizer.zero_grad()\n    optimizer.step()\n",
        good="for x, y in batches:\n    optimizer.zero_grad()\n    loss = loss_fn(model(x), y)\n"
        "    loss.backward()\n    optimizer.step()\n",
    ),
)

GRADIENTS_NOT_CLEARED = Rule(
    id="AUD102",
    name="gradients-not-cleared",
    summary="Backward adds onto gradients that the previous step has already used.",
    rationale="Each step follows the sum of all gradients so far: the step size grows without "
    "limit and old batches never stop counting.",
    fix="Call optimizer.zero_grad() once per iteration, on the optimizer or model that is stepped.",
    limits="Reported after three such steps in a row, only if gradients are carried over "
    "untouched: accumulation over micro-batches and decayed gradients are no fault. MEDIUM where "
    "only a part of the parameters is never cleared, and where two steps apply one gradient, in "
    "the first 24 steps of an optimizer. With a closure, what its evaluations add up "
    "within one step is not judged.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "gradients.carried"),
    tags=("protocol",),
    example=Example(
        bad="for x, y in batches:\n    loss_fn(model(x), y).backward()\n    optimizer.step()\n",
        good="for x, y in batches:\n    optimizer.zero_grad()\n"
        "    loss_fn(model(x), y).backward()\n    optimizer.step()\n",
    ),
)

ACCUMULATION_NOT_DIVIDED = Rule(
    id="AUD103",
    name="accumulation-not-divided",
    summary="The mean losses of several micro-batches, or one loss several times, are added up and "
    "none is divided.",
    rationale="The gradient is as many times too large as there are micro-batches: a learning rate "
    "that was tuned for one batch is too high, and clipping acts on every step.",
    fix="Divide each micro-batch's loss by the number of micro-batches before backward; call "
    "backward once on each loss.",
    limits="Decided by an oracle in the third window with the same number of backward passes on "
    "different data: by linearity, the gradient of the concatenation is the mean of the measured "
    "ones. A sum over tasks looks the same, so it is HIGH only where [tool.nabla.audit] "
    "accumulation declares it, MEDIUM where the source shows it (a step under a modulo, or names "
    "like accumulation_steps or micro) or each of three or more losses is divided by their "
    "number, and information otherwise; HIGH where backward ran several times from one loss "
    "tensor in three steps in a row. Silent for sums, for single "
    "samples and for losses whose graph does not show how they were averaged.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "gradients.written", "batches"),
    options=("accumulation",),
    tags=("protocol", "oracle"),
    example=Example(
        bad="for index, (x, y) in enumerate(batches):\n    loss_fn(model(x), y).backward()\n"
        "    if index % 4 == 3:\n        optimizer.step()\n        optimizer.zero_grad()\n",
        good="for index, (x, y) in enumerate(batches):\n    (loss_fn(model(x), y) / 4).backward()\n"
        "    if index % 4 == 3:\n        optimizer.step()\n        optimizer.zero_grad()\n",
    ),
)

ACCUMULATION_WEIGHTING = Rule(
    id="AUD104",
    name="accumulation-weighting",
    summary="Micro-batches with different numbers of tokens or samples count the same.",
    rationale="The mean of means is not the mean: units of small micro-batches weigh more, so the "
    "result depends on how a batch is split.",
    fix="Sum the losses over all micro-batches and divide by their total number of units.",
    limits="Decided by an oracle, in two windows so that one short last batch is no pattern: "
    "cosine below 0.999 and unit counts more than 5 % apart. Severity as for AUD103. The counts "
    "come from the loss's own mean or from the tensor it is divided by.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "gradients.written", "batches"),
    options=("accumulation",),
    tags=("protocol", "oracle"),
    example=Example(
        bad="for ids, targets in micro_batches:  # targets hold -100 where padded\n"
        "    (cross_entropy(model(ids), targets) / count).backward()\noptimizer.step()\n",
        good="total = sum((targets != -100).sum() for _, targets in micro_batches)\n"
        "for ids, targets in micro_batches:\n"
        '    (cross_entropy(model(ids), targets, reduction="sum") / total).backward()\n'
        "optimizer.step()\n",
    ),
)

ACCUMULATION_DISCARDED = Rule(
    id="AUD105",
    name="accumulation-discarded",
    summary="The gradients of all micro-batches but the last are cleared before the step.",
    rationale="The work of the other micro-batches is thrown away: the batch is smaller than it "
    "seems, and where the loss is divided, the step is smaller too.",
    fix="Call zero_grad() once per step, not once per micro-batch.",
    limits="Reported after three such steps in a row, only if each pass had other data, all wrote "
    "the same gradients at the same parameter values, no other leaf was differentiated, and the "
    "step's gradient is measured to be that of the last pass alone. Silent where the passes come "
    "from different lines, or the loop around them reads gradients: one may be kept.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "gradients.written", "batches"),
    tags=("protocol", "oracle"),
    example=Example(
        bad="for x, y in micro_batches:\n    optimizer.zero_grad()\n"
        "    (loss_fn(model(x), y) / count).backward()\noptimizer.step()\n",
        good="optimizer.zero_grad()\nfor x, y in micro_batches:\n"
        "    (loss_fn(model(x), y) / count).backward()\noptimizer.step()\n",
    ),
)

BACKWARD_COUNT_CHANGED = Rule(
    id="AUD106",
    name="backward-count-changed",
    summary="The number of backward passes per step changed for good.",
    rationale="A step is made of more or less data than before, at the same learning rate.",
    fix="Check what decides when the optimizer steps; scale the learning rate if this is meant.",
    limits="Information only: after ten steps with one count, three in a row with another. A "
    "single short window at the end of an epoch is no change.",
    severity=Severity.INFO,
    since="0.1",
    needs=("calls", "gradients.written"),
    tags=("protocol",),
    example=Example(
        bad="for index, batch in enumerate(batches):\n    loss(batch).backward()\n"
        "    if index % (4 if index < 100 else 3) == 0:\n        optimizer.step()\n",
        good="for index, batch in enumerate(batches):\n    loss(batch).backward()\n"
        "    if index % 4 == 0:\n        optimizer.step()\n",
    ),
)

CLIP_BEFORE_UNSCALE = Rule(
    id="AUD107",
    name="clip-before-unscale",
    summary="Gradients are clipped while they are still multiplied by the loss scale.",
    rationale="The limit is compared with a norm that is thousands of times too large: every step "
    "is clipped to almost nothing.",
    fix="Call scaler.unscale_(optimizer) before clipping.",
    limits="Seen for torch's clip_grad_norm_ and clip_grad_value_ with a finite limit, at the "
    "second such call, while a scale other than one is open and unscale_ was not called.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "clipping", "scaling"),
    tags=("protocol", "mixed-precision"),
    example=Example(
        bad="scaler.scale(loss).backward()\nclip_grad_norm_(model.parameters(), 1.0)\n"
        "scaler.step(optimizer)\nscaler.update()\n",
        good="scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\n"
        "clip_grad_norm_(model.parameters(), 1.0)\nscaler.step(optimizer)\nscaler.update()\n",
    ),
)

CLIP_OF_NOTHING = Rule(
    id="AUD108",
    name="clip-of-nothing",
    summary="Clipping, or another change of gradients, is given none that a step will use.",
    rationale="Nothing is clipped: the norm that is returned and logged is zero, or that of "
    "gradients whose step is over.",
    fix="Clip between backward() and step(), and pass model.parameters() anew at each call: an "
    "iterator is used up after the first one.",
    limits="At the second call that is given an empty list while backward has written gradients. "
    "Parameters without gradients may belong to a part that does not take part. Clipping "
    "behind the step, before backward, or of parameters that only another optimizer or none holds, "
    "is reported before the third step in a row without any other clipping; an infinite limit "
    "only measures, and so does one a hundred times above the norm. MEDIUM for gradients that the "
    "program itself changes after the step and before zero_grad(), after three of the first eight "
    "steps in a row.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "clipping"),
    tags=("protocol",),
    example=Example(
        bad="parameters = model.parameters()\nfor x, y in batches:\n"
        "    loss_fn(model(x), y).backward()\n    clip_grad_norm_(parameters, 1.0)\n",
        good="parameters = list(model.parameters())\nfor x, y in batches:\n"
        "    loss_fn(model(x), y).backward()\n    clip_grad_norm_(parameters, 1.0)\n",
    ),
)

SCALER_PROTOCOL = Rule(
    id="AUD109",
    name="scaler-protocol",
    summary="The optimizer steps on gradients that are scaled, wholly or in part.",
    rationale="The update is off by the loss scale, a factor of thousands; steps with an infinity "
    "are not skipped.",
    fix="Scale every loss with scaler.scale() and step with scaler.step(optimizer).",
    limits="Reported at the second such step. That only some losses are scaled is looked for in "
    "the first backward passes. Scalers written by hand are not known.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "scaling"),
    tags=("protocol", "mixed-precision"),
    example=Example(
        bad="scaler.scale(loss).backward()\noptimizer.step()\n",
        good="scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\n",
    ),
)

GRADIENT_FROM_OTHER_LOSS = Rule(
    id="AUD110",
    name="gradient-from-other-loss",
    summary="A step also applies the gradient of a backward that was made for another optimizer.",
    rationale="In adversarial training the discriminator is also pushed to please the generator, "
    "so the two losses cancel.",
    fix="Clear the gradients right before the own backward, or detach the other network's input.",
    limits="Reported after three such steps in a row: a backward that wrote for several "
    "optimizers, a step of another one, then a backward that wrote for this one alone, with no "
    "clear between. MEDIUM, because a sum of both losses may be meant.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("calls", "gradients.written"),
    tags=("protocol",),
    example=Example(
        bad="g_opt.zero_grad()\ng_loss(D(G(z))).backward()\ng_opt.step()\n"
        "d_loss(D(real), D(G(z).detach())).backward()\nd_opt.step()\nd_opt.zero_grad()\n",
        good="g_opt.zero_grad()\ng_loss(D(G(z))).backward()\ng_opt.step()\nd_opt.zero_grad()\n"
        "d_loss(D(real), D(G(z).detach())).backward()\nd_opt.step()\n",
    ),
)

OPTIMIZER_REMADE = Rule(
    id="AUD111",
    name="optimizer-remade",
    summary="A new optimizer is made for every step, so that its momentum is never used.",
    rationale="Adam without a history steps by the sign of the gradient, and SGD loses its "
    "momentum.",
    fix="Make the optimizer once, before the loop.",
    limits="Reported after three optimizers in a row that each made one step with the same "
    "parameters and left state behind, if nobody changed the parameters in between. Optimizers "
    "that keep none, that loaded some, or that step with a closure are left out.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls",),
    tags=("protocol",),
    example=Example(
        bad="for x, y in batches:\n    optimizer = Adam(model.parameters())\n"
        "    loss_fn(model(x), y).backward()\n    optimizer.step()\n    optimizer.zero_grad()\n",
        good="optimizer = Adam(model.parameters())\nfor x, y in batches:\n"
        "    loss_fn(model(x), y).backward()\n    optimizer.step()\n    optimizer.zero_grad()\n",
    ),
)

RULES = (
    STEP_WITHOUT_GRADIENT,
    GRADIENTS_NOT_CLEARED,
    ACCUMULATION_NOT_DIVIDED,
    ACCUMULATION_WEIGHTING,
    ACCUMULATION_DISCARDED,
    BACKWARD_COUNT_CHANGED,
    CLIP_BEFORE_UNSCALE,
    CLIP_OF_NOTHING,
    SCALER_PROTOCOL,
    GRADIENT_FROM_OTHER_LOSS,
    OPTIMIZER_REMADE,
)
