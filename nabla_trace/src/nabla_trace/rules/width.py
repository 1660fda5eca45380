"""The rule about what happens to a model when it is made wider."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = ["RULES", "WIDTH_SCALING"]

WIDTH_SCALING = Rule(
    id="GEO504",
    name="width-scaling",
    summary="What the first steps change at a layer depends on the width of the model.",
    rationale="A learning rate that was found with a narrow model is wrong for a wide one: where "
    "the change grows, the wide model diverges; where it shrinks, the layer stops learning.",
    fix="Scale the initialisation and the learning rate of each weight with its width, as maximal "
    "update parametrisation does (with Adam: rate 1 / fan-in for hidden matrices and the output).",
    limits="A power law through the root mean square of the change of each layer's output after a "
    "few steps on one batch, over at least three widths that span a factor of four; twice the "
    "standard error of the slope counts as the layer's favour. Nothing is said of a layer whose "
    "output does not change or is not finite, or of depth.",
    severity=Severity.LOW,
    since="0.1",
    options=("width_slope",),
    example=Example(
        bad="optimizer = Adam(model.parameters(), lr=1e-2)  # at every width\n",
        good="groups = [{'params': p, 'lr': 1e-2 * 64 / width} for p in model.hidden_matrices()]\n"
        "optimizer = Adam(groups)\n",
    ),
)

RULES = (WIDTH_SCALING,)
