"""Rules about single values and levels of the loss."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "DIVERGENCE",
    "GROWING_OSCILLATION",
    "LOSS_LEVEL_SHIFT",
    "LOSS_SPIKE",
    "NON_FINITE_GRADIENT_LOGGED",
    "NON_FINITE_LOSS_LOGGED",
    "RULES",
    "WRONG_LOSS_SIGN",
]

NON_FINITE_LOSS_LOGGED = Rule(
    id="RUN101",
    name="non-finite-loss-logged",
    summary="The logged loss is NaN or infinite.",
    rationale="From that step on nothing is learnt, and the parameters are usually lost.",
    fix="Rerun from the last good checkpoint under nabla run: it names the operation and the "
    "sample that made the first bad number.",
    limits="An empty cell is not logged, not NaN. Of losses beside the training loss (parts, "
    "players, validation) three in a row that are not finite are needed, after one that was. A "
    "trainer that replaces NaN before it logs hides it. The log does not show which operation made "
    "the number.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("GS001",),
    needs=("loss",),
    tags=("loss",),
    example=Example(
        bad="loss = -(target * torch.log(probability)).sum()\n",
        good="loss = F.cross_entropy(logits, target)\n",
    ),
)

NON_FINITE_GRADIENT_LOGGED = Rule(
    id="RUN102",
    name="non-finite-gradient-logged",
    summary="The gradient norm is NaN or infinite while the loss is finite.",
    rationale="A derivative broke before the value did: the next step writes it into every "
    "parameter.",
    fix="Look for a square root, a power, a norm or a division at zero; nabla run names it.",
    limits="Reported when the loss follows, or after 25 rows in a row, because a loss scaler "
    "searches its scale with fewer. A single one is reported where the update of the same row is "
    "logged and is not zero, and every step has its row.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("GS002",),
    needs=("grad_norm",),
    tags=("gradient",),
    example=Example(
        bad="distance = (a - b).pow(2).sum(-1).sqrt()\n",
        good="distance = ((a - b).pow(2).sum(-1) + 1e-12).sqrt()\n",
    ),
)

LOSS_SPIKE = Rule(
    id="RUN103",
    name="loss-spike",
    summary="The loss jumps far above its recent level again and again, and comes back.",
    rationale="Single batches undo many good steps.",
    fix="Look at the samples of these steps; clip the gradient near its median.",
    limits="The third spike is reported, not the first: heavy-tailed data have some; the second if "
    "both are ten times as high as the loss of the untrained model. Silent for "
    "batches of one sample and for losses declared custom.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("loss",),
    tags=("loss",),
    example=Example(
        bad="loss = F.mse_loss(model(x), y)  # a few targets are a thousand times too large\n",
        good="loss = F.huber_loss(model(x), y)\n",
    ),
)

LOSS_LEVEL_SHIFT = Rule(
    id="RUN104",
    name="loss-level-shift",
    summary="The loss jumped to a higher level and stayed there.",
    rationale="Something changed at that step: the data, the state of a resumed run, or the "
    "learning rate.",
    fix="Compare data, checkpoint and settings just before and after that step.",
    limits="A new phase of a curriculum, or a larger batch under a contrastive loss, looks the "
    "same, and a run that logs no validation loss is judged all the same; where there were "
    "evaluations in the last 45 rows, the next two are waited for, and it is information if both "
    "are lower, as it is where the loss rises above its start and the gradient falls. The new "
    "level must be near the level at which the run started. It must last twenty rows, ten where "
    "nothing of the progress is left, or forty in a log of averages, of which bad batches lift "
    "many; and be worth 5 % of the loss of guessing where that is known. What is learnt again at "
    "once is seen where twenty rows stand out from all 240 before, and in a noisy run what forty "
    "rows lost. Losses declared custom are not judged.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("loss",),
    tags=("loss",),
    example=Example(
        bad="model = build_model()\noptimizer.load_state_dict(checkpoint['optimizer'])\n",
        good="model.load_state_dict(checkpoint['model'])\n"
        "optimizer.load_state_dict(checkpoint['optimizer'])\n",
    ),
)

DIVERGENCE = Rule(
    id="RUN105",
    name="divergence",
    summary="The loss rises far above the level at which it started, or comes back to it for good.",
    rationale="The run is worse than an untrained model and will not recover by itself.",
    fix="Lower the learning rate, add a warm-up or clip the gradient.",
    limits="Reported after eight rows, or thirty of an averaged loss that comes back, and of one "
    "below twice the loss of guessing in the first sixty rows, whose batches may be of one kind. A "
    "loss that blew up in its first ten rows and came back only to guessing is reported after "
    "sixty rows, and one that came down and slowly back to its start after a hundred rows there: "
    "its progress must have been above 4.5 times the noise of blocks of ten, or the medians of "
    "fifty rows 2.4 times, and three quarters of it lost; not where the evaluations since then are "
    "lower. A loss that is not finite soon after it left its start needs three rows. Losses "
    "declared custom, and losses of adversaries and policies, may rise and are not judged.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("GS006",),
    needs=("loss",),
    tags=("loss",),
    example=Example(
        bad="optimizer = torch.optim.SGD(model.parameters(), lr=50.0)\n",
        good="optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n",
    ),
)

GROWING_OSCILLATION = Rule(
    id="RUN106",
    name="growing-oscillation",
    summary="The loss swings around its level, and the swings grow.",
    rationale="The step size is at the edge of stability and the run will diverge.",
    fix="Lower the learning rate or the momentum.",
    limits="Needs a swing that alternates from row to row and grows fourfold; noise of small "
    "batches does not alternate. Losses of adversaries are not judged.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("GS009",),
    needs=("loss",),
    tags=("loss",),
    example=Example(
        bad="optimizer = torch.optim.SGD(model.parameters(), lr=1.9 / curvature, momentum=0.99)\n",
        good="optimizer = torch.optim.SGD(model.parameters(), lr=0.5 / curvature, momentum=0.9)\n",
    ),
)

WRONG_LOSS_SIGN = Rule(
    id="RUN109",
    name="wrong-loss-sign",
    summary="The loss rises steadily from the first step although the steps are small.",
    rationale="The optimizer climbs: a minus is missing or one is too many.",
    fix="Check the sign of the loss and the optimizer's maximize flag.",
    limits="Needs small updates, because too large ones make the loss rise as well, and a climb "
    "that does not fade; of a declared cross-entropy, ten first rows that are all below zero by "
    "half the loss of guessing. A loss that is meant to rise must be declared custom.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("loss", "update_ratio"),
    tags=("loss",),
    example=Example(
        bad="loss = -F.mse_loss(model(x), y)\n",
        good="loss = F.mse_loss(model(x), y)\n",
    ),
)

RULES = (
    NON_FINITE_LOSS_LOGGED,
    NON_FINITE_GRADIENT_LOGGED,
    LOSS_SPIKE,
    LOSS_LEVEL_SHIFT,
    DIVERGENCE,
    GROWING_OSCILLATION,
    WRONG_LOSS_SIGN,
)
