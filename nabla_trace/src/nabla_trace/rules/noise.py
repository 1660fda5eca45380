"""Rules about the noise of the gradient."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "BATCH_TOO_LARGE",
    "BATCH_TOO_SMALL",
    "NOISE_UNDETERMINED",
    "RULES",
]

BATCH_TOO_SMALL = Rule(
    id="GEO401",
    name="batch-too-small",
    summary="The batch is far smaller than the gradient noise scale.",
    rationale="Steps are mostly noise; a larger batch would allow proportionally larger steps.",
    fix="Raise the batch size or accumulate; or accept the noise if each step is cheap.",
    limits="The simple noise scale tr(S)/|G|^2 of this part of the run, with its interval; the"
    " best batch size depends on the hardware too.",
    severity=Severity.INFO,
    since="0.1",
    example=Example(
        bad="loader = DataLoader(data, batch_size=2)\n",
        good="loader = DataLoader(data, batch_size=256)\n",
    ),
)

BATCH_TOO_LARGE = Rule(
    id="GEO402",
    name="batch-too-large",
    summary="The batch is far larger than the gradient noise scale.",
    rationale="Most samples of a batch say the same: half the batch costs half and teaches nearly"
    " as much.",
    fix="Lower the batch size, or raise the learning rate.",
    limits="As for GEO401. The noise scale grows during training.",
    severity=Severity.INFO,
    since="0.1",
    example=Example(
        bad="loader = DataLoader(data, batch_size=65536)\n",
        good="loader = DataLoader(data, batch_size=1024)\n",
    ),
)

NOISE_UNDETERMINED = Rule(
    id="GEO403",
    name="noise-undetermined",
    summary="The gradient noise scale cannot be told from the batches seen.",
    rationale="The mean gradient is not larger than its own error.",
    fix="Trace more batches, or larger ones.",
    limits="Says nothing about the run.",
    severity=Severity.INFO,
    since="0.1",
    example=Example(
        bad="with nabla.trace.attach(model, optimizer, every=1) as trace:\n"
        "    step(loader)  # one batch\n",
        good="with nabla.trace.attach(model, optimizer, every=1) as trace:\n"
        "    for batch in loader:\n"
        "        step(batch)\n",
    ),
)

RULES = (
    BATCH_TOO_SMALL,
    BATCH_TOO_LARGE,
    NOISE_UNDETERMINED,
)
