"""What a rule found: one issue, where it is and the numbers that prove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal

from .numbers import json_number, number_from_json

if TYPE_CHECKING:
    from .severity import Severity

__all__ = ["Evidence", "Issue", "Location", "Phase", "Quantity", "Reproduction"]

Phase = Literal["data", "forward", "loss", "backward", "optimizer", "parameter", "loop", "resume"]
"""Where in a training step: before the model, inside a module, between the model's output and
backward, in backward, in the optimizer, a parameter written elsewhere, the loop, a resume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A measured number with its unit and the limit it was held against.

    Attributes:
        value: the measurement.
        unit: ``""`` for a plain number or ratio, else e.g. ``"steps"``, ``"bytes"``, ``"ulp"``.
        limit: the number that ``value`` was compared with, if any.
    """

    value: float
    unit: str = ""
    limit: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping; non-finite numbers become strings."""
        payload: dict[str, object] = {"value": json_number(self.value)}
        if self.unit:
            payload["unit"] = self.unit
        if self.limit is not None:
            payload["limit"] = json_number(self.limit)
        return payload

    def __str__(self) -> str:
        text = f"{self.value:.6g}{' ' + self.unit if self.unit else ''}"
        return text if self.limit is None else f"{text} (limit {self.limit:.6g})"


_ROOT = "(the whole model)"

Evidence = Quantity | float | int | str | bool
"""A piece of evidence: a measured quantity or a plain scalar, never a tensor."""


def _known(record: Location | Reproduction) -> dict[str, object]:
    parts = ((part.name, getattr(record, part.name)) for part in fields(record))
    return {name: value for name, value in parts if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in the model, in the source or in the data. Every part is optional.

    Attributes:
        module: dotted path of the module inside the model; empty for the model itself.
        parameter: dotted name of the parameter or argument.
        op: operator, e.g. ``"aten::exp"`` or the name of an ``autograd.Function``.
        file: source file, relative to the project where possible.
        line: 1-based line in ``file``.
        function: function or method in ``file``.
        rank: rank of the process in distributed training.
        sample: index along the batch axis.
    """

    module: str | None = None
    parameter: str | None = None
    op: str | None = None
    file: str | None = None
    line: int | None = None
    function: str | None = None
    rank: int | None = None
    sample: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the parts that are known."""
        return _known(self)

    def __str__(self) -> str:
        source = f"{self.file}:{self.line}" if self.file and self.line else self.file
        named = [
            f"{label} {value}"
            for label, value in (
                ("module", _ROOT if self.module == "" else self.module),
                ("parameter", self.parameter),
                ("op", self.op),
                ("sample", self.sample),
                ("rank", self.rank),
            )
            if value is not None
        ]
        return ", ".join([source, *named] if source else named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """How to see the issue again.

    Attributes:
        seed: seed that was in force.
        command: shell command that shows the issue.
        script: self-contained Python source that shows the issue.
    """

    seed: int | None = None
    command: str | None = None
    script: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the parts that are known."""
        return _known(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One verdict of one rule. Made by :meth:`nabla_core.rule.Rule.issue` only.

    Attributes:
        rule: ID of the rule, e.g. ``"RUN301"``.
        name: kebab-case name of the rule.
        severity: severity after configuration.
        message: one sentence with the measured value and the limit.
        where: place in the model, source or data.
        step: 0-based optimizer step of the session at which it was first seen.
        last_step: step at which it was last seen.
        phase: part of the training step.
        evidence: names and numbers that prove the message.
        limitation: what the measurement does not show.
        suggestion: what to try.
        confidence: 1.0 for an exact fact, below for a statistical one.
        count: how often it was seen in the session.
        plugin: name of the plugin that owns the rule.
        reproduction: how to see it again.
        artifact: path of stored evidence.
        related: fingerprints of issues that belong to it.
    """

    rule: str
    name: str
    severity: Severity
    message: str
    where: Location | None = None
    step: int | None = None
    last_step: int | None = None
    phase: Phase | None = None
    evidence: Mapping[str, Evidence] = field(default_factory=dict, hash=False)
    limitation: str = ""
    suggestion: str = ""
    confidence: float = 1.0
    count: int = 1
    plugin: str = ""
    reproduction: Reproduction | None = None
    artifact: str | None = None
    related: tuple[str, ...] = ()

    @property
    def category(self) -> str:
        """``UPPER_SNAKE`` form of the rule's name."""
        return self.name.replace("-", "_").upper()

    @property
    def fingerprint(self) -> str:
        """Identity over runs: rule and place, without step, line or value (16 hex digits)."""
        from hashlib import sha256  # most commands have no issue

        place = self.where or Location()
        parts = (
            self.rule,
            place.module,
            place.parameter,
            place.op,
            place.file,
            place.function,
            None if place.rank is None else str(place.rank),
        )
        text = "\x1f".join(part or "" for part in parts)
        return sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]

    def seen_again(self, step: int | None) -> Issue:
        """Return this issue with its count raised and ``last_step`` moved on."""
        return replace(
            self, count=self.count + 1, last_step=self.last_step if step is None else step
        )

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping (schema 1.0)."""
        return {
            "rule": self.rule,
            "name": self.name,
            "category": self.category,
            "severity": self.severity.label,
            "message": self.message,
            "where": self.where.to_dict() if self.where else None,
            "step": self.step,
            "last_step": self.last_step,
            "phase": self.phase,
            "evidence": {name: _evidence_json(value) for name, value in self.evidence.items()},
            "limitation": self.limitation,
            "suggestion": self.suggestion,
            "confidence": self.confidence,
            "count": self.count,
            "plugin": self.plugin,
            "fingerprint": self.fingerprint,
            "reproduction": self.reproduction.to_dict() if self.reproduction else None,
            "artifact": self.artifact,
            "related": list(self.related),
        }


def _evidence_json(value: Evidence) -> object:
    if isinstance(value, Quantity):
        return value.to_dict()
    return json_number(value) if isinstance(value, float) else value


def evidence_from_json(value: object) -> Evidence:
    """Rebuild a piece of evidence from :meth:`Issue.to_dict`.

    Raises:
        ValueError: ``value`` is neither a scalar nor a quantity.
    """
    if isinstance(value, dict):
        limit = value.get("limit")
        return Quantity(
            value=number_from_json(value.get("value")),
            unit=str(value.get("unit", "")),
            limit=None if limit is None else number_from_json(limit),
        )
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return number_from_json(value)
    raise ValueError(f"evidence is a scalar or a quantity, not {type(value).__name__}")
