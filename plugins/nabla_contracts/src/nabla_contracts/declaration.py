"""A contract: what must hold, when it is looked at, and what happens when it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypedDict

from nabla_core.binder import bind_field, closest
from nabla_core.errors import UsageError
from nabla_core.options import option
from nabla_core.rule import Rule
from nabla_core.severity import Severity

from .judgement import Judge
from .names import ALL, Globs
from .view import Need

if TYPE_CHECKING:
    from nabla_core.session import Session

    from .detector import ContractDetector

__all__ = ["Contract", "NamedTerms", "TermArguments", "Terms", "read_terms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """When a contract is looked at, and what happens when it does not hold."""

    name: str = option("", "what reports call it; by default what it says")
    every: int = option(1, "look at one of so many steps", minimum=1)
    consecutive: int = option(1, "report from so many breaches in a row on", minimum=1)
    severity: Severity | None = option(None, "severity instead of that of the rule")
    raise_on_failure: bool | None = option(
        None, "end the run with a ContractViolation; by default as the guard was told"
    )


class NamedTerms(TypedDict, total=False):
    """The fields of :class:`Terms` as keyword arguments, but for the name."""

    every: int
    consecutive: int
    severity: Severity | str | None
    raise_on_failure: bool | None


class TermArguments(NamedTerms, total=False):
    """The fields of :class:`Terms` as keyword arguments."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contract:
    """One invariant. It holds no state: the same contract may be held by any number of runs.

    Attributes:
        name: what reports call it.
        rule: the rule that reports a breach.
        begin: makes what judges one optimizer's steps.
        needs: what is looked at before anything is judged; absent means not evaluated.
        terms: see :class:`Terms`.
        parameters: globs for the parameters whose ``updates`` it looks at.
        only_unusual: whether it need not see the boundary of a step that is like the ones before.
    """

    name: str
    rule: Rule
    begin: Callable[[], Judge]
    needs: frozenset[Need] = frozenset()
    terms: Terms = Terms()
    parameters: Globs = ALL
    only_unusual: bool = False

    @property
    def after_step(self) -> bool:
        """Whether it is judged after the optimizer has acted."""
        return "updates" in self.needs

    def detector(self, session: Session, *, raise_on_failure: bool = False) -> ContractDetector:
        """Return what holds ``session`` to this contract.

        Args:
            session: connected to its source.
            raise_on_failure: for a contract that does not say it itself.
        """
        from .detector import ContractDetector

        return ContractDetector(self, session, raise_on_failure)


def read_terms(call: str, given: Mapping[str, object], default_name: str) -> Terms:
    """Return the terms that a contract was given.

    Args:
        call: how the person wrote the contract, for messages.
        given: keyword arguments.
        default_name: name of the contract if it is given none.

    Raises:
        UsageError: a term is unknown, of the wrong type or out of range; all mistakes at once.
    """
    known = {found.name: found for found in fields(Terms)}
    values: dict[str, object] = {}
    mistakes: list[str] = []
    for key, value in given.items():
        if key not in known:
            hint = closest(key, list(known)) or f"; the terms are {', '.join(known)}"
            mistakes.append(f"{call}: {key}: unknown{hint}")
            continue
        values[key], mistake = bind_field(Terms, known[key], value, f"{call}: {key}")
        if mistake is not None:
            mistakes.append(mistake)
    if mistakes:
        raise UsageError("\n".join(mistakes))
    terms = replace(Terms(), **values)  # type: ignore[arg-type]
    return terms if terms.name else replace(terms, name=default_name)
