"""Rules about the signal on its way through the layers."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "RULES",
    "SIGNAL_EXPLODING",
    "SIGNAL_RANK_COLLAPSE",
    "SIGNAL_VANISHING",
]

SIGNAL_VANISHING = Rule(
    id="GEO501",
    name="signal-vanishing",
    summary="Activations or gradients shrink from block to block.",
    rationale="Layers far from the loss do not learn.",
    fix="Use a scaled initialisation, normalisation or residual connections.",
    limits="Root mean squares of the outputs of the blocks and of their gradients at one step;"
    " needs at least four blocks.",
    severity=Severity.MEDIUM,
    since="0.1",
    example=Example(
        bad="for layer in layers:\n    torch.nn.init.normal_(layer.weight, std=0.001)\n",
        good="for layer in layers:\n    torch.nn.init.kaiming_normal_(layer.weight)\n",
    ),
)

SIGNAL_EXPLODING = Rule(
    id="GEO502",
    name="signal-exploding",
    summary="Activations or gradients grow from block to block.",
    rationale="The first steps overflow or throw the parameters away.",
    fix="Use a scaled initialisation, normalisation or clipping.",
    limits="As for GEO501.",
    severity=Severity.MEDIUM,
    since="0.1",
    example=Example(
        bad="for layer in layers:\n    torch.nn.init.normal_(layer.weight, std=1.0)\n",
        good="for layer in layers:\n    torch.nn.init.kaiming_normal_(layer.weight)\n",
    ),
)

SIGNAL_RANK_COLLAPSE = Rule(
    id="GEO503",
    name="signal-rank-collapse",
    summary="The samples become indistinguishable on the way through the layers.",
    rationale="What the layers behind get is the same for every input.",
    fix="Use residual connections or normalisation; check for saturated or dead units.",
    limits="Mean cosine between the outputs of different samples after their mean over the "
    "batch is not removed; a constant feature raises it, so the first block is the "
    "reference.",
    severity=Severity.LOW,
    since="0.1",
    example=Example(
        bad="model = Sequential(*[Block(skip=False) for _ in range(48)])\n",
        good="model = Sequential(*[Block(skip=True) for _ in range(48)])\n",
    ),
)

RULES = (
    SIGNAL_VANISHING,
    SIGNAL_EXPLODING,
    SIGNAL_RANK_COLLAPSE,
)
