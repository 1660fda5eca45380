"""What a comparison of ranks found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from ..rules import RANKS_DIFFER

__all__ = ["RankComparison", "odd_ranks", "ranks_issue"]

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RankComparison(ResultMixin):
    """Whether the replicas are one model.

    Attributes:
        ranks: that were compared.
        issues: REP106 where they differ.
        first_step: first step at which they differ; ``None`` for a comparison of now.
        differing: tensor to the ranks that disagree with most.
        compared_steps: steps that all ranks have a record of; 1 for a comparison of now.
        fail_on: severity from which it does not pass.
    """

    ranks: tuple[int, ...]
    issues: tuple[Issue, ...] = ()
    first_step: int | None = None
    differing: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    compared_steps: int = 0
    fail_on: Severity = Severity.HIGH

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "passed": self.passed,
            "ranks": list(self.ranks),
            "first_step": self.first_step,
            "differing": {name: list(ranks) for name, ranks in self.differing.items()},
            "compared_steps": self.compared_steps,
            "issues": [issue.to_dict() for issue in self.issues],
        }


def odd_ranks(values: Mapping[int, bytes]) -> tuple[int, ...]:
    """Return the ranks whose value is not the one that most have; of equals, the lowest rank's."""
    counts: dict[bytes, int] = {}
    for value in values.values():
        counts[value] = counts.get(value, 0) + 1
    usual = max(counts, key=lambda value: counts[value])
    return tuple(rank for rank, value in sorted(values.items()) if value != usual)


def ranks_issue(
    differing: Mapping[str, tuple[int, ...]], step: int | None, also: tuple[str, ...] = ()
) -> Issue:
    """Return the issue about tensors that differ between ranks.

    Args:
        differing: tensor to the ranks that disagree with most.
        step: of the comparison, if it is known.
        also: further components that differ.
    """
    names = list(differing)
    ranks = sorted({rank for found in differing.values() for rank in found})
    more = len(names) - _SHOWN
    listed = ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    where = ", ".join(map(str, ranks))
    when = "now" if step is None else f"after step {step}"
    told = f"; so does the {' and the '.join(also)}" if also else ""
    return RANKS_DIFFER.issue(
        f"{len(names)} tensors ({listed}) of rank {where} differ from those of "
        f"the other ranks {when}, bit by bit{told}.",
        step=step,
        where=Location(parameter=names[0], rank=ranks[0]),
        tensors=Quantity(value=len(names), limit=0),
    )
