"""Rules about learning rates, schedules and the size of updates."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "LOSS_SCALES_WITH_BATCH",
    "LR_JUMP",
    "OVER_CLIPPING",
    "RULES",
    "SCHEDULE_ENDED_EARLY",
    "UPDATES_STOPPED",
    "UPDATE_TOO_LARGE",
    "UPDATE_TOO_SMALL",
]

UPDATE_TOO_LARGE = Rule(
    id="RUN201",
    name="update-too-large",
    summary="Single steps change the parameters by a large part of their size, and the loss does "
    "not improve.",
    rationale="The learning rate is too high for this model; the run diverges or stays in noise.",
    fix="Divide the learning rate by ten, or add a warm-up.",
    limits="Only in the first hundred rows: more than 0.3 in a step, 0.1 in all of them, or 0.04 "
    "where the loss rose by half; or a first step that changed half of the layers by 0.7 of their "
    "size, after which nothing was learnt. Large updates with a falling loss are not reported, "
    "nor those that do little but shrink the weights, as decay does.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("GS008",),
    needs=("loss", "update_ratio"),
    tags=("step size",),
    example=Example(
        bad="optimizer = torch.optim.Adam(model.parameters(), lr=1.0)\n",
        good="optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)\n",
    ),
)

UPDATE_TOO_SMALL = Rule(
    id="RUN202",
    name="update-too-small",
    summary="All steps together moved the parameters by almost nothing, and the loss stands still.",
    rationale="The learning rate, or what is left of the gradient, is far too small.",
    fix="Raise the learning rate tenfold; check clipping and loss scaling.",
    limits="Judged after 60, 120 and 300 rows. Silent during a warm-up, after the end of a "
    "schedule and while the loss falls. The sum of update ratios bounds the distance moved from "
    "above.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("GS008",),
    needs=("loss", "update_ratio"),
    tags=("step size",),
    example=Example(
        bad="optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)\n",
        good="optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n",
    ),
)

SCHEDULE_ENDED_EARLY = Rule(
    id="RUN203",
    name="schedule-ended-early",
    summary="The learning rate fell to almost zero long before the end of the run.",
    rationale="The steps that follow change nothing.",
    fix="Give the schedule the number of steps that it is really called for.",
    limits="With the planned steps known: reported when 20 % of them are left. Without: when the "
    "low phase has lasted as long as 40 % of the rows before it. A rate that came down by steps "
    "and holds still may go down to 0.05 % of its peak; a rate of a row or two is no peak. "
    "Restarts end it; a schedule that ends in a long tail on purpose would be reported wrongly.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("GS010",),
    needs=("lr",),
    tags=("schedule",),
    example=Example(
        bad="scheduler = CosineAnnealingLR(optimizer, T_max=epochs)  # stepped once per batch\n",
        good="scheduler = CosineAnnealingLR(optimizer, T_max=epochs * len(loader))\n",
    ),
)

LR_JUMP = Rule(
    id="RUN204",
    name="lr-jump",
    summary="The learning rate jumped above everything before, and the run took harm.",
    rationale="A resumed schedule, a mixed-up parameter group or a typing error.",
    fix="Compare the schedule's state before and after that step.",
    limits="A warm restart returns to an old peak and is not reported; nor is a jump after which "
    "the loss keeps its level and no step replaces a third of the parameters.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("lr", "loss"),
    tags=("schedule",),
    example=Example(
        bad="optimizer.param_groups[0]['lr'] = 1.0  # was 0.01\n",
        good="optimizer.param_groups[0]['lr'] = 0.01\n",
    ),
)

OVER_CLIPPING = Rule(
    id="RUN205",
    name="over-clipping",
    summary="Clipping leaves almost nothing of the gradient in nearly every step.",
    rationale="Every step has the same tiny length, whatever the gradient says.",
    fix="Clip near the 90th percentile of the norm; unscale before clipping.",
    limits="Needs the clipping coefficient. Reported only when the parameters hardly move: "
    "adaptive optimizers undo a common factor.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("clip_coef",),
    tags=("step size",),
    example=Example(
        bad="clip_grad_norm_(model.parameters(), 1e-4)\n",
        good="clip_grad_norm_(model.parameters(), 1.0)\n",
    ),
)

UPDATES_STOPPED = Rule(
    id="RUN206",
    name="updates-stopped",
    summary="Steps change a layer, or all parameters, by exactly nothing.",
    rationale="The optimizer holds other tensors, the rate is zero, or the gradient is cut.",
    fix="Make the optimizer after moving or replacing the model; check the rate and detach().",
    limits="Exact. A layer is reported only while others move: frozen on purpose looks the same. "
    "Rates of zero in the first rows of a warm-up and at the end of a schedule are not reported.",
    severity=Severity.HIGH,
    since="0.1",
    tags=("step size",),
    example=Example(
        bad="optimizer = SGD(model.parameters(), lr=0.1)\nmodel.head = nn.Linear(64, 10)\n",
        good="model.head = nn.Linear(64, 10)\noptimizer = SGD(model.parameters(), lr=0.1)\n",
    ),
)

LOSS_SCALES_WITH_BATCH = Rule(
    id="RUN207",
    name="loss-scales-with-batch",
    summary="The first loss is that of guessing times the number of samples: it is summed.",
    rationale="A summed loss multiplies the gradient by the batch size.",
    fix="Use reduction='mean', or divide the learning rate by the batch size.",
    limits="Needs the kind of loss, the number of classes and the batch size. A sum on purpose "
    "with a small rate is right; it is reported only beside steps that are too large, or when the "
    "loss was thrown up threefold and the run learnt nothing in sixty rows.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("loss",),
    tags=("loss",),
    example=Example(
        bad="loss = F.cross_entropy(logits, target, reduction='sum')\n",
        good="loss = F.cross_entropy(logits, target)\n",
    ),
)

RULES = (
    UPDATE_TOO_LARGE,
    UPDATE_TOO_SMALL,
    SCHEDULE_ENDED_EARLY,
    LR_JUMP,
    OVER_CLIPPING,
    UPDATES_STOPPED,
    LOSS_SCALES_WITH_BATCH,
)
