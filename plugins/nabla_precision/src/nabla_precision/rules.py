"""Rules about the dtype that a module can run in."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "GRADIENT_UNDERFLOW",
    "LOCAL_ERROR",
    "LOSS_SCALING_NEEDED",
    "OVERFLOW",
    "RULES",
]

_ALONE = (
    "Each module is run alone on the exact inputs of one batch: values are rounded to the dtype "
    "after every operation, sums inside an operation are kept in float32, as accelerators do. "
    "Other batches may behave differently, and kernels that accumulate in the dtype itself are "
    "worse. Inherited errors of earlier modules are shown, never judged."
)

LOCAL_ERROR = Rule(
    id="PRC101",
    name="local-error",
    summary="A module loses digits by itself when it runs in this dtype.",
    rationale="Cancellation, long sums and steep functions magnify rounding; one such module "
    "spoils everything behind it, and the modules behind it look guilty.",
    fix="Keep the named module in float32 (exclusions() writes the code), or rewrite it so that "
    "large numbers are not subtracted from each other.",
    limits=_ALONE + " The gradient's error is held against the size that the gradient has without "
    "cancellation between samples.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("NG1002",),
    tags=("numerics", "dtype"),
    example=Example(
        bad="class Shift(nn.Module):\n    def forward(self, x):\n        return (x + 300) - 300\n",
        good="class Shift(nn.Module):\n    def forward(self, x):\n        return (x + 1) - 1\n",
    ),
)

OVERFLOW = Rule(
    id="PRC102",
    name="overflow-in-dtype",
    summary="A module produces numbers that this dtype cannot hold.",
    rationale="An infinity turns into NaN in the next subtraction or normalisation.",
    fix="Keep the module in float32 (exclusions() writes the code), use bfloat16, which has the "
    "range of float32, or scale before squaring.",
    limits=_ALONE + " Numbers beyond the range of float32 are taken for masks and left out.",
    severity=Severity.MEDIUM,
    since="0.1",
    tags=("numerics", "dtype"),
    example=Example(
        bad="class Energy(nn.Module):\n    def forward(self, x):\n"
        "        return (x * 400).square() / 160000\n",
        good="class Energy(nn.Module):\n    def forward(self, x):\n        return x.square()\n",
    ),
)

GRADIENT_UNDERFLOW = Rule(
    id="PRC103",
    name="gradient-underflow-in-dtype",
    summary="A module's gradients vanish in this dtype, whatever the loss scale.",
    rationale="Entries that become zero are never learnt from, and the loss does not show it.",
    fix="Keep the module in float32, or use bfloat16, which has the range of float32.",
    limits=_ALONE + " Judged with the largest loss scale (a power of two) at which no gradient of "
    "the model overflows.",
    severity=Severity.MEDIUM,
    since="0.1",
    tags=("numerics", "dtype"),
    example=Example(
        bad="class Twice(nn.Module):\n    def forward(self, x):\n"
        "        return head(x) + 1e8 * loud(x)\n",
        good="class Twice(nn.Module):\n    def forward(self, x):\n"
        "        return head(x) + loud(x)\n",
    ),
)

LOSS_SCALING_NEEDED = Rule(
    id="PRC104",
    name="loss-scaling-needed",
    summary="Gradients are too small for this dtype unless the loss is scaled.",
    rationale="Without scaling, part of the gradient's entries become zero or lose digits.",
    fix="Use torch.amp.GradScaler, or bfloat16, which has the range of float32.",
    limits="One finding for the whole model, from the gradients of one batch and one loss. "
    "Gradients shrink as the training goes on, so the share may grow.",
    severity=Severity.LOW,
    since="0.1",
    tags=("numerics", "dtype"),
    example=Example(
        bad="with torch.autocast('cuda', torch.float16):\n    loss = criterion(model(x), y)\n"
        "loss.backward()\n",
        good="with torch.autocast('cuda', torch.float16):\n    loss = criterion(model(x), y)\n"
        "scaler.scale(loss).backward()\n",
    ),
)

RULES = (LOCAL_ERROR, OVERFLOW, GRADIENT_UNDERFLOW, LOSS_SCALING_NEEDED)
