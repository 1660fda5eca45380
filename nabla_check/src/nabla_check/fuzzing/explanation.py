"""From the smallest failing case to verdicts: one full check of that case, and a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from nabla_core.errors import UsageError
from nabla_core.issue import Issue, Location, Reproduction
from nabla_core.rule import Rule
from nabla_core.session import Session, SessionOptions

from ..check_operator import operator
from ..evidence.reproduction import ScriptCase, reproduction_script
from ..inputs.callee import name_of
from ..inputs.layouts import copy_as_is
from ..inputs.operands import widened
from ..rules import (
    BACKWARD_MISMATCH,
    COTANGENT_LAYOUT,
    FORWARD_MISMATCH,
    INPUT_LAYOUT,
    PRECISION,
    PROPERTY_VIOLATION,
    RULES,
)
from .campaign import Campaign
from .outcome import Finding
from .recipe import Case
from .subject import call, draw_cotangents
from .trial import Trial

__all__ = ["Explanation", "explain"]

_ABOUT_VALUES = (FORWARD_MISMATCH.id, BACKWARD_MISMATCH.id)
_RULES: dict[str, Rule] = {rule.id: rule for rule in RULES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Verdicts about one case.

    Attributes:
        issues: what fails, each with its setting and reproduction.
        script: the reproduction, if one could be written.
    """

    issues: tuple[Issue, ...]
    script: str | None


def explain(campaign: Campaign, case: Case, finding: Finding, setting: str) -> Explanation:
    """Explain why ``case`` fails.

    The operator check names cause and place. Where it finds nothing (a property, or a difference
    that only the case itself shows) the finding of the trial is the verdict.
    """
    issues = () if finding.rule == PROPERTY_VIOLATION.id else _checked(campaign, case)
    setting_rule = INPUT_LAYOUT if finding.rule == INPUT_LAYOUT.id else None
    if finding.kind in _ABOUT_VALUES:
        setting_rule = _rule_of_the_setting(campaign, case)
    if setting_rule in (INPUT_LAYOUT, COTANGENT_LAYOUT):
        # the check takes the given memory for granted; only the twin in other memory tells
        issues = tuple(issue for issue in issues if issue.rule not in _ABOUT_VALUES)
        issues = (_verdict(campaign, finding, setting_rule), *issues)
    script = _script(campaign, case, finding, setting)
    found = issues or (_verdict(campaign, finding, setting_rule),)
    reproduction = Reproduction(seed=case.seed, script=script)
    return Explanation(
        issues=tuple(
            replace(
                issue,
                plugin="check",
                evidence={**issue.evidence, "setting": setting, "seed": case.seed},
                reproduction=reproduction,
            )
            for issue in found
        ),
        script=script,
    )


def _checked(campaign: Campaign, case: Case) -> tuple[Issue, ...]:
    subject = campaign.subject
    # its issues reach the caller's session through the campaign, once and with their setting
    with Session(options=SessionOptions(isolated=True, command="nabla.check.fuzz")):
        try:
            result = operator(
                candidate=subject.candidate,
                reference=subject.reference,
                inputs=subject.filled(case.build()),
                seed=case.seed,
                kwargs=subject.kwargs,
                check_backward=None if campaign.options.backward else False,
                check_variations=False,
            )
        except UsageError:
            return ()  # inputs that a single check refuses, e.g. none that is differentiable
    return (*result.failures, *(entry.issue for entry in result.allowed))


def _verdict(campaign: Campaign, finding: Finding, rule: Rule | None) -> Issue:
    place = Location(op=name_of(campaign.subject.candidate), parameter=finding.operand)
    used = rule or _RULES[finding.rule]
    issue = used.issue(finding.message, where=place, phase=finding.phase)
    evidence = dict(finding.evidence)
    if used in (INPUT_LAYOUT, COTANGENT_LAYOUT):
        evidence["cause"] = "the same values in contiguous memory pass"
    elif used is PRECISION:
        evidence["cause"] = "the same values in float64 pass"
    return replace(issue, evidence=evidence)


def _rule_of_the_setting(campaign: Campaign, case: Case) -> Rule | None:
    """Blame the layout, or the dtype, when the same values pass in another one."""
    trial = Trial(campaign.subject, campaign.options)
    strided = any(entry.layout != "contiguous" for entry in case.inputs)
    if strided and trial.run_with(case, [_dense(x) for x in case.build()]).state == "passed":
        return INPUT_LAYOUT
    reference = campaign.subject.reference
    if case.cotangent != "contiguous" and reference is not None:
        outputs = call(campaign.subject, reference, case.build(), case).outputs
        dense = [_dense(x) for x in draw_cotangents(outputs, case)]
        if trial.run_with(case, case.build(), dense).state == "passed":
            return COTANGENT_LAYOUT
    wide = [_widened(x) for x in case.build()]
    if [x.dtype for x in wide] != [x.dtype for x in case.build()]:
        return PRECISION if trial.run_with(case, wide).state == "passed" else None
    return None


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.detach().clone(memory_format=torch.contiguous_format)
    return dense.requires_grad_(tensor.requires_grad)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return widened([tensor])[0].requires_grad_(tensor.requires_grad)


def _script(campaign: Campaign, case: Case, finding: Finding, setting: str) -> str | None:
    subject = campaign.subject
    tensors = case.build()
    limit = dict(finding.evidence).get("limit")
    cotangents: Sequence[torch.Tensor] = ()
    if subject.reference is not None and isinstance(limit, float):
        copies = [copy_as_is(x).requires_grad_(x.requires_grad) for x in tensors]
        cotangents = draw_cotangents(call(subject, subject.reference, copies, case).outputs, case)
    title = f"{finding.rule} {_RULES[finding.rule].name} of {name_of(subject.candidate)}: {setting}"
    if finding.rule == PROPERTY_VIOLATION.id:
        return None
    return reproduction_script(
        ScriptCase(
            title=title,
            candidate=subject.candidate,
            reference=subject.reference,
            inputs=subject.filled(tensors),
            kwargs=subject.kwargs,
            cotangents=cotangents,
            limit=limit if isinstance(limit, float) and cotangents else None,
            seed=case.seed,
        )
    )
