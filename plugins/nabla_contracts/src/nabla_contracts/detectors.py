"""The detectors of contracts: of those that a call was given, and of the configured ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nabla_core.errors import UsageError

from .declaration import Contract
from .detector import ContractDetector
from .settings import ContractSettings, configured_contracts

if TYPE_CHECKING:
    from nabla_core.session import Session

__all__ = ["configured_detectors", "contract_detectors", "only_contracts"]


def contract_detectors(
    contracts: Iterable[Contract], session: Session, *, raise_on_failure: bool = False
) -> list[ContractDetector]:
    """Return what holds a session to contracts; give each to ``session.add_detector``.

    Args:
        contracts: what must hold.
        session: connected to its source, which may be a live loop or a log.
        raise_on_failure: for contracts that do not say it themselves. With a live loop a breach
            then ends the run by itself; with another source call ``obey()`` after each record.

    Raises:
        UsageError: one of them is no contract.
    """
    return [
        contract.detector(session, raise_on_failure=raise_on_failure)
        for contract in only_contracts(contracts)
    ]


def only_contracts(given: Contract | Iterable[Contract]) -> list[Contract]:
    """Return what was given as a list.

    Raises:
        UsageError: one of them is no contract.
    """
    contracts = [given] if isinstance(given, Contract) else list(given)
    for contract in contracts:
        if not isinstance(contract, Contract):
            raise UsageError(
                f"contracts=[{type(contract).__name__}]: needs contracts such as "
                "nabla.contracts.loss.finite()"
            )
    return contracts


def configured_detectors(session: Session) -> list[ContractDetector]:
    """Return what holds a session to ``[tool.nabla.contracts]``."""
    settings = session.options(ContractSettings)
    contracts = configured_contracts(settings) if settings.hold else ()
    return contract_detectors(contracts, session, raise_on_failure=settings.raise_on_failure)
