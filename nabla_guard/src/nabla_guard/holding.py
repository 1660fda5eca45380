"""Contracts that a person gives to a call: objects that make detectors, and configured names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from nabla_core.config import Config
from nabla_core.errors import UsageError
from nabla_core.report import NotEvaluated

if TYPE_CHECKING:
    from nabla_core.detector import Detector
    from nabla_core.rule import Rule
    from nabla_core.session import Session

__all__ = ["Ending", "Holdable", "declared_names", "hold", "obey", "split_contracts"]


@runtime_checkable
class Holdable(Protocol):
    """What nabla-contracts calls a contract: the instrument need not know more of it."""

    @property
    def name(self) -> str:
        """What reports call it."""

    @property
    def rule(self) -> Rule:
        """The rule that reports a breach."""

    @property
    def needs(self) -> frozenset[str]:
        """Facts without which it is not evaluated, e.g. ``"activations"``."""

    def detector(self, session: Session, *, raise_on_failure: bool = False) -> Detector:
        """Return what holds a session that is connected to its source."""


@runtime_checkable
class Ending(Protocol):
    """A detector that may want to end a run whose source is no live loop."""

    def obey(self) -> None:
        """Raise what ends the run, if there is anything."""


def split_contracts(given: object, call: str) -> tuple[tuple[str, ...], tuple[Holdable, ...]]:
    """Return the names and the contracts among what a person gave.

    Args:
        given: contracts, and names of configured ones.
        call: the function they were given to, for the message.

    Raises:
        UsageError: one of them is neither, or no list was given.
    """
    if isinstance(given, Holdable):
        given = (given,)
    if isinstance(given, str):
        given = tuple(part.strip() for part in given.split(",") if part.strip())
    if not isinstance(given, Iterable):
        raise UsageError(f"{call}(contracts={type(given).__name__}): needs a list of contracts")
    names: list[str] = []
    contracts: list[Holdable] = []
    for found in given:
        if isinstance(found, str):
            names.append(found)
        elif isinstance(found, Holdable):
            contracts.append(found)
        else:
            raise UsageError(
                f"{call}(contracts=[{type(found).__name__}]): needs contracts such as "
                "nabla.contracts.loss.finite(), or names of configured ones"
            )
    return tuple(names), tuple(contracts)


def hold(
    session: Session, contracts: Iterable[Holdable], *, raise_on_failure: bool = False
) -> tuple[NotEvaluated, ...]:
    """Hold a session to contracts; call it when the session is connected to its source.

    Args:
        session: judges its steps by them from now on.
        contracts: what must hold.
        raise_on_failure: end the run at a breach, for contracts that do not say it themselves.

    Returns:
        Contracts whose rule is not selected.
    """
    unselected = []
    for contract in contracts:
        if session.selects(contract.rule):
            session.add_detector(contract.detector(session, raise_on_failure=raise_on_failure))
        else:
            reason = f"contract {contract.name!r}: its rule is not selected"
            unselected.append(NotEvaluated(rule=contract.rule.id, reason=reason))
    return tuple(unselected)


def obey(session: Session) -> None:
    """Let the detectors of a session end the run; a live loop does so by itself."""
    for detector in session.detectors:
        if isinstance(detector, Ending):
            detector.obey()


def declared_names(config: Config, table: str = "contracts") -> frozenset[str] | None:
    """Return the names of the configured contracts; ``None`` when no plugin holds contracts."""
    settings = [found for found in config.settings if found.table == table]
    if not settings:
        return None
    held = next((found.value for found in settings if found.key == "hold"), None)
    return frozenset(held) if isinstance(held, dict) else frozenset()
