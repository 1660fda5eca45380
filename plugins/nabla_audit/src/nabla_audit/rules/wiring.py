"""Rules about which parameters are trained, and by what."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "FOREIGN_PARAMETER",
    "PARAMETER_NOT_IN_OPTIMIZER",
    "RULES",
]

PARAMETER_NOT_IN_OPTIMIZER = Rule(
    id="AUD201",
    name="parameter-not-in-optimizer",
    summary="A parameter receives gradients, is in no optimizer and keeps its random initial "
    "values.",
    rationale="A part of the model stays random while the rest learns to live with it.",
    fix="Pass all parameters to the optimizer, or call requires_grad_(False) on what must stay "
    "as it is.",
    limits="Why a parameter was left out cannot be observed. It is a fault only if its values look "
    "freshly drawn, no load_state_dict set them, nobody changes them and no optimizer ever held "
    "them; "
    "else it is reported as information. Weights loaded in another way that look like a normal or "
    "uniform sample, and random features that are meant to stay random, would be reported wrongly.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("wiring", "gradients.written"),
    tags=("wiring",),
    example=Example(
        bad="optimizer = torch.optim.Adam(model.body.parameters())\n",
        good="optimizer = torch.optim.Adam(model.parameters())\n",
    ),
)

FOREIGN_PARAMETER = Rule(
    id="AUD202",
    name="optimizer-holds-foreign-parameter",
    summary="The optimizer holds parameters that no running module has, and misses some that run.",
    rationale="A module was replaced or copied after the optimizer was made: the optimizer trains "
    "the old object, the program runs the new one.",
    fix="Make the optimizer after the model has its final parts, or add the new ones by "
    "add_param_group.",
    limits="Needs both: a held parameter that is never written, and a running one with non-zero "
    "gradients that no optimizer holds and nobody changes. Only parameters of modules that the "
    "program "
    "calls are known.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("wiring", "gradients.written"),
    tags=("wiring",),
    example=Example(
        bad="optimizer = torch.optim.Adam(model.parameters())\nmodel.head = nn.Linear(32, 3)\n",
        good="model.head = nn.Linear(32, 3)\noptimizer = torch.optim.Adam(model.parameters())\n",
    ),
)

RULES = (
    PARAMETER_NOT_IN_OPTIMIZER,
    FOREIGN_PARAMETER,
)
