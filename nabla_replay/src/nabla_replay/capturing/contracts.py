"""Holds a captured run to contracts: the guard judges its steps by them, and by nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nabla_core.listeners import Observer
from nabla_core.report import NotEvaluated
from nabla_core.selection import Selection, SelectionOptions, Selector
from nabla_core.session import Session, SessionOptions
from nabla_guard.holding import Holdable, split_contracts
from nabla_guard.loop.scope import Scope
from nabla_guard.monitor import Monitor
from nabla_guard.options import GuardOptions

from .parts import Parts

__all__ = ["HeldContracts", "WantedContracts", "wanted_contracts"]

_PREFIX = "CON"
_OF_LAYERS = "activations"  # what only the standard mode measures


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedContracts:
    """What a person wants to be held.

    Attributes:
        names: of configured contracts.
        contracts: those of ``nabla.contracts``.
        raise_on_failure: end the run at the first that is broken.
    """

    names: tuple[str, ...] = ()
    contracts: tuple[Holdable, ...] = ()
    raise_on_failure: bool = False

    def __bool__(self) -> bool:
        return bool(self.names or self.contracts)


def wanted_contracts(given: object, *, raise_on_failure: bool = False) -> WantedContracts:
    """Return what was given to ``capture(contracts=...)``.

    Raises:
        UsageError: something in it is neither a contract nor a name.
    """
    names, contracts = split_contracts(given, "capture")
    return WantedContracts(names=names, contracts=contracts, raise_on_failure=raise_on_failure)


class HeldContracts:
    """A session of its own, inside the one around the capture, which judges by contracts only.

    Args:
        parts: the program whose steps are judged.
        wanted: what must hold.
        hear: told each breach, and at the end what could not be judged.
    """

    def __init__(self, parts: Parts, wanted: WantedContracts, hear: Observer) -> None:
        self.session = Session(options=SessionOptions(command="nabla.capture"))
        self.session.selection = _contracts_alone(self.session)
        self.session.subscribe(hear)
        self.not_evaluated: tuple[NotEvaluated, ...] = ()
        deep_enough = any(_OF_LAYERS in contract.needs for contract in wanted.contracts)
        options = GuardOptions(
            mode="standard" if deep_enough or wanted.names else "light",
            shadow="off",
            contracts=wanted.names,
            raise_on_failure=wanted.raise_on_failure,
        )
        scope = Scope(parts.model, parts.optimizers)
        self._monitor = Monitor(self.session, scope, options, wanted.contracts)

    def start(self) -> None:
        """Begin to judge."""
        self._monitor.__enter__()

    def stop(self) -> None:
        """Judge the whole run, and let go of torch."""
        self._monitor.__exit__(None, None, None)
        report = self._monitor.report()
        self.not_evaluated = tuple(
            one for one in report.not_evaluated if one.rule.startswith(_PREFIX)
        )


def _contracts_alone(session: Session) -> Selection:
    """Those rules about contracts that are selected anyway, and no other ones."""
    core = session.config.core
    registry = session.host.registry
    unwanted = [
        rule.id for rule in registry if rule.id.startswith(_PREFIX) and not session.selects(rule)
    ]
    return Selection(
        registry,
        SelectionOptions(
            select=_selectors([_PREFIX]),
            ignore=_selectors(unwanted),
            severity={_selectors([text])[0]: level for text, level in core.severity.items()},
            per_module={glob: _selectors(texts) for glob, texts in core.per_module.items()},
        ),
    )


def _selectors(texts: Sequence[str]) -> tuple[Selector, ...]:
    return tuple(Selector(text=text, source="nabla.capture") for text in texts)
